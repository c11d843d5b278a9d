/*
 * places.h - how many connections the simulated device takes: in all, of one user, and how long one may say nothing.
 * docs/security/listeners.md shows the numbers beside those of the other listeners (vgpud/host/listeners.py).
 */
#ifndef VG_SIM_PLACES_H
#define VG_SIM_PLACES_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PLACES_MAX 1024
#define PLACES_OF_USER_MAX 512
#define PLACES_MORE 1024          /* beyond both, for root and the user of the server */
#define GREETING_NS 2000000000ull /* by then a connection has sent its first request */
#define ACCEPTED_AT_ONCE 32       /* then the requests of processes and a round come first */
#define DESCRIPTORS_OF_PROCESS 4  /* its connection, its pidfd, and what it shares */
#define DESCRIPTORS_KEPT 64       /* for the server itself */

int places_open(void);         /* raises the limit of descriptors. 0 or -errno */
bool places_free(uid_t uid);   /* whether there is a place for one more connection of this user */
uint64_t places_late_ns(void); /* when the first silent connection is late, or NEVER */
void places_close_late(uint64_t now_ns);
void places_refuse_one(int listener); /* where there is no descriptor left: closes the next connection */
#endif

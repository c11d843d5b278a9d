/*
 * ask SOCKET: attaches by this socket, as a program would that bypasses the shim. Prints the answer's status
 * (vg_abi.h) and text; a connection that fails prints why.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "abi/vg_abi.h"

int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct vg_attach_request request = {.magic = VG_ABI_MAGIC, .abi_version = VG_ABI_VERSION, .bytes = sizeof request};
  struct vg_attach_reply reply = {0};
  if (argc != 2) return 2;
  strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) ||
      send(fd, &request, sizeof request, 0) != sizeof request || recv(fd, &reply, sizeof reply, 0) != sizeof reply) {
    perror(argv[1]);
    return 1;
  }
  printf("%u %.*s\n", reply.status, (int)sizeof reply.text, reply.text);
  return 0;
}

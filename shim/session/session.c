/* session.c - see session.h. */
#include "session/session.h"

struct vg_session vg_session;

/* pyconfig.h - stands beside Python.h of this folder: a release build of the interpreter, so nothing is defined. */

/* error_names.h - the runtime's error numbers, names and texts, one a line. Most numbers are the driver's as well. */
#ifndef SC_CUDART_ERROR_NAMES_H
#define SC_CUDART_ERROR_NAMES_H

/* clang-format off */
#define SC_ERRORS(X) \
  X(0, cudaSuccess, "no error") \
  X(1, cudaErrorInvalidValue, "invalid argument") \
  X(2, cudaErrorMemoryAllocation, "out of memory") \
  X(3, cudaErrorInitializationError, "initialization error") \
  X(4, cudaErrorCudartUnloading, "the driver is shutting down") \
  X(5, cudaErrorProfilerDisabled, "the profiler is off") \
  X(6, cudaErrorProfilerNotInitialized, "the profiler was not started up") \
  X(7, cudaErrorProfilerAlreadyStarted, "the profiler runs already") \
  X(8, cudaErrorProfilerAlreadyStopped, "the profiler is stopped already") \
  X(9, cudaErrorInvalidConfiguration, "invalid shape of a launch") \
  X(12, cudaErrorInvalidPitchValue, "invalid pitch") \
  X(13, cudaErrorInvalidSymbol, "invalid device symbol") \
  X(16, cudaErrorInvalidHostPointer, "invalid host pointer") \
  X(17, cudaErrorInvalidDevicePointer, "invalid device pointer") \
  X(18, cudaErrorInvalidTexture, "invalid texture") \
  X(19, cudaErrorInvalidTextureBinding, "invalid binding of a texture") \
  X(20, cudaErrorInvalidChannelDescriptor, "invalid channel descriptor") \
  X(21, cudaErrorInvalidMemcpyDirection, "invalid direction of a copy") \
  X(22, cudaErrorAddressOfConstant, "address of a constant") \
  X(23, cudaErrorTextureFetchFailed, "a texture could not be fetched") \
  X(24, cudaErrorTextureNotBound, "the texture is not bound") \
  X(25, cudaErrorSynchronizationError, "a synchronization failed") \
  X(26, cudaErrorInvalidFilterSetting, "invalid filter of a texture") \
  X(27, cudaErrorInvalidNormSetting, "invalid coordinates of a texture") \
  X(28, cudaErrorMixedDeviceExecution, "mixed execution on a device") \
  X(31, cudaErrorNotYetImplemented, "not implemented yet") \
  X(32, cudaErrorMemoryValueTooLarge, "too large a value for a memory") \
  X(34, cudaErrorStubLibrary, "the driver is a stub library") \
  X(35, cudaErrorInsufficientDriver, "the CUDA driver is missing or older than the runtime needs") \
  X(36, cudaErrorCallRequiresNewerDriver, "the call needs a newer CUDA driver") \
  X(37, cudaErrorInvalidSurface, "invalid surface") \
  X(43, cudaErrorDuplicateVariableName, "two variables of one name") \
  X(44, cudaErrorDuplicateTextureName, "two textures of one name") \
  X(45, cudaErrorDuplicateSurfaceName, "two surfaces of one name") \
  X(46, cudaErrorDevicesUnavailable, "all CUDA devices are busy or unavailable") \
  X(49, cudaErrorIncompatibleDriverContext, "the driver's context does not fit the runtime") \
  X(52, cudaErrorMissingConfiguration, "a launch without a shape") \
  X(53, cudaErrorPriorLaunchFailure, "a launch before this one failed") \
  X(65, cudaErrorLaunchMaxDepthExceeded, "launches of launches too deep") \
  X(66, cudaErrorLaunchFileScopedTex, "texture of file scope in a nested launch") \
  X(67, cudaErrorLaunchFileScopedSurf, "surface of file scope in a nested launch") \
  X(68, cudaErrorSyncDepthExceeded, "synchronization too deep") \
  X(69, cudaErrorLaunchPendingCountExceeded, "too many pending launches") \
  X(98, cudaErrorInvalidDeviceFunction, "invalid device function") \
  X(100, cudaErrorNoDevice, "no CUDA-capable device") \
  X(101, cudaErrorInvalidDevice, "invalid device ordinal") \
  X(102, cudaErrorDeviceNotLicensed, "the device has no licence") \
  X(103, cudaErrorSoftwareValidityNotEstablished, "the software could not be checked") \
  X(127, cudaErrorStartupFailure, "the runtime could not start") \
  X(200, cudaErrorInvalidKernelImage, "invalid image of kernels") \
  X(201, cudaErrorDeviceUninitialized, "invalid device context") \
  X(205, cudaErrorMapBufferObjectFailed, "a buffer object could not be mapped") \
  X(206, cudaErrorUnmapBufferObjectFailed, "a buffer object could not be unmapped") \
  X(207, cudaErrorArrayIsMapped, "the array is mapped") \
  X(208, cudaErrorAlreadyMapped, "the resource is mapped already") \
  X(209, cudaErrorNoKernelImageForDevice, "no image of kernels for this device") \
  X(210, cudaErrorAlreadyAcquired, "the resource is acquired already") \
  X(211, cudaErrorNotMapped, "the resource is not mapped") \
  X(212, cudaErrorNotMappedAsArray, "the resource is not mapped as an array") \
  X(213, cudaErrorNotMappedAsPointer, "the resource is not mapped as a pointer") \
  X(214, cudaErrorECCUncorrectable, "an ECC error that cannot be corrected") \
  X(215, cudaErrorUnsupportedLimit, "the device has no such limit") \
  X(216, cudaErrorDeviceAlreadyInUse, "another thread uses the device exclusively") \
  X(217, cudaErrorPeerAccessUnsupported, "no peer access between these devices") \
  X(218, cudaErrorInvalidPtx, "invalid PTX") \
  X(219, cudaErrorInvalidGraphicsContext, "invalid graphics context") \
  X(220, cudaErrorNvlinkUncorrectable, "an NVLink error that cannot be corrected") \
  X(221, cudaErrorJitCompilerNotFound, "no compiler for PTX") \
  X(222, cudaErrorUnsupportedPtxVersion, "PTX of a version that this driver does not know") \
  X(223, cudaErrorJitCompilationDisabled, "compilation of PTX is off") \
  X(224, cudaErrorUnsupportedExecAffinity, "unsupported affinity") \
  X(225, cudaErrorUnsupportedDevSideSync, "unsupported synchronization on the device") \
  X(226, cudaErrorContained, "an error that was contained") \
  X(300, cudaErrorInvalidSource, "invalid source of kernels") \
  X(301, cudaErrorFileNotFound, "file not found") \
  X(302, cudaErrorSharedObjectSymbolNotFound, "a shared object lacks a symbol") \
  X(303, cudaErrorSharedObjectInitFailed, "a shared object could not start") \
  X(304, cudaErrorOperatingSystem, "a call of the operating system failed") \
  X(400, cudaErrorInvalidResourceHandle, "invalid resource handle") \
  X(401, cudaErrorIllegalState, "illegal state") \
  X(402, cudaErrorLossyQuery, "the question cannot be answered without loss") \
  X(500, cudaErrorSymbolNotFound, "symbol not found") \
  X(600, cudaErrorNotReady, "device not ready") \
  X(700, cudaErrorIllegalAddress, "a kernel used an illegal memory address") \
  X(701, cudaErrorLaunchOutOfResources, "too many resources requested for a launch") \
  X(702, cudaErrorLaunchTimeout, "a kernel ran too long and was ended") \
  X(703, cudaErrorLaunchIncompatibleTexturing, "a launch with an incompatible texturing mode") \
  X(704, cudaErrorPeerAccessAlreadyEnabled, "peer access is on already") \
  X(705, cudaErrorPeerAccessNotEnabled, "peer access is not on") \
  X(708, cudaErrorSetOnActiveProcess, "the primary context is in use already") \
  X(709, cudaErrorContextIsDestroyed, "the context is destroyed") \
  X(710, cudaErrorAssert, "device-side assert triggered") \
  X(711, cudaErrorTooManyPeers, "too many peers") \
  X(712, cudaErrorHostMemoryAlreadyRegistered, "the host memory is registered already") \
  X(713, cudaErrorHostMemoryNotRegistered, "the host memory is not registered") \
  X(714, cudaErrorHardwareStackError, "an error of a kernel's stack") \
  X(715, cudaErrorIllegalInstruction, "an illegal instruction in a kernel") \
  X(716, cudaErrorMisalignedAddress, "a misaligned address in a kernel") \
  X(717, cudaErrorInvalidAddressSpace, "an operation in the wrong address space") \
  X(718, cudaErrorInvalidPc, "an invalid program counter in a kernel") \
  X(719, cudaErrorLaunchFailure, "unspecified launch failure") \
  X(720, cudaErrorCooperativeLaunchTooLarge, "too many blocks in a cooperative launch") \
  X(721, cudaErrorTensorMemoryLeak, "a kernel did not free its tensor memory") \
  X(800, cudaErrorNotPermitted, "operation not permitted") \
  X(801, cudaErrorNotSupported, "operation not supported") \
  X(802, cudaErrorSystemNotReady, "the system is not ready") \
  X(803, cudaErrorSystemDriverMismatch, "driver and kernel module do not match") \
  X(804, cudaErrorCompatNotSupportedOnDevice, "no forward compatibility on this device") \
  X(805, cudaErrorMpsConnectionFailed, "MPS: no connection to its daemon") \
  X(806, cudaErrorMpsRpcFailure, "MPS: a call failed") \
  X(807, cudaErrorMpsServerNotReady, "MPS: its server is not ready") \
  X(808, cudaErrorMpsMaxClientsReached, "MPS: too many clients") \
  X(809, cudaErrorMpsMaxConnectionsReached, "MPS: too many connections") \
  X(810, cudaErrorMpsClientTerminated, "MPS: a client was ended by its server") \
  X(811, cudaErrorCdpNotSupported, "no launches from kernels on this device") \
  X(812, cudaErrorCdpVersionMismatch, "launches from kernels of another version") \
  X(900, cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing") \
  X(901, cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture") \
  X(902, cudaErrorStreamCaptureMerge, "operation would merge two captures") \
  X(903, cudaErrorStreamCaptureUnmatched, "capture was not begun in this stream") \
  X(904, cudaErrorStreamCaptureUnjoined, "capture ends while another stream is not joined") \
  X(905, cudaErrorStreamCaptureIsolation, "dependency of a capture on work outside of it") \
  X(906, cudaErrorStreamCaptureImplicit, "the legacy stream depends on a capturing stream") \
  X(907, cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream") \
  X(908, cudaErrorStreamCaptureWrongThread, "capture was begun by another thread") \
  X(909, cudaErrorTimeout, "the wait ran out of time") \
  X(910, cudaErrorGraphExecUpdateFailure, "the executable graph cannot be updated so") \
  X(911, cudaErrorExternalDevice, "an error outside of CUDA on another device") \
  X(912, cudaErrorInvalidClusterSize, "invalid size of a cluster") \
  X(913, cudaErrorFunctionNotLoaded, "the function is not loaded") \
  X(914, cudaErrorInvalidResourceType, "invalid type of a resource") \
  X(915, cudaErrorInvalidResourceConfiguration, "invalid configuration of a resource") \
  X(999, cudaErrorUnknown, "unknown error") \
  X(10000, cudaErrorApiFailureBase, "API failure base")
/* clang-format on */

#endif

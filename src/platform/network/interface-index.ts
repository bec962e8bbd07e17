// The kernel's number of a network interface (if_nametoindex(3)). Not from /sys: in a container, that may show the
// interfaces of the host.

import { FFIType, ptr } from "bun:ffi";
import { AppError } from "../../base/errors.ts";
import { openCLibrary } from "../c-library.ts";

const symbols = { if_nametoindex: { args: [FFIType.ptr], returns: FFIType.u32 } } as const;

/** Undefined for an interface that does not exist. Throws where the library cannot be opened. */
export type IndexOf = (device: string) => number | undefined;

export function openInterfaceIndex(): IndexOf {
  try {
    const { if_nametoindex: find } = openCLibrary(symbols);
    return (device) => find(ptr(Buffer.from(`${device}\0`))) || undefined;
  } catch (error) {
    throw new AppError("failed", "Cannot open the C library: interfaces cannot be found", {
      cause: error,
      hint: "MemoryDenyWriteExecute= must not be set for this service.",
    });
  }
}

// The error when a listener cannot have its address.

import { AppError, fromSystemError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import type { ListenAddress } from "../http/edge.ts";

/** What `open` returns. Throws `failed` if the address cannot be had. `flag`: the one that sets the address. */
export function explainBindError<T>(open: () => T, flag: string, { hostname, port }: ListenAddress): T {
  try {
    return open();
  } catch (error) {
    const where = `${hostname}:${port}`;
    if (systemErrorCode(error) === "EADDRINUSE") {
      throw new AppError("failed", `Cannot listen on ${where}: another process listens there`, {
        cause: error,
        hint: `Choose another port with ${flag}. Port 0 takes a free port.`,
      });
    }
    throw fromSystemError(`listen on ${where}`, error);
  }
}

/** Throws as a listener at this address would. `flag`: the one that sets the address. */
export function requireFree(flag: string, listen: ListenAddress): void {
  explainBindError(
    () => Bun.listen({ ...listen, socket: { data: () => undefined } }).stop(true),
    flag,
    listen,
  );
}

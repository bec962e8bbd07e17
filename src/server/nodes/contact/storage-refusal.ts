// What a revoked node is told must not depend on a write: it learns of its revocation even if the disk is full.

import { isStorageUnavailable } from "../../store/database.ts";

/** What `write` returns, or `otherwise` if the storage refuses the write, for example because the disk is full. */
export async function unlessStorageRefuses<T>(write: () => Promise<T>, otherwise: T): Promise<T> {
  try {
    return await write();
  } catch (error) {
    if (isStorageUnavailable(error)) return otherwise;
    throw error;
  }
}

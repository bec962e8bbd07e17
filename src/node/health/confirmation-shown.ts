// The user of a node has to confirm that it is still theirs: the words of status and doctor. `status` loads this file, so
// it imports only types.

import type { Confirmation } from "../../protocol/confirmation.ts";

/** Part of a sentence, and what to do. */
export function describeConfirmation({ until, url }: Confirmation): { what: string; next: string } {
  return {
    what: `its user has to confirm it by ${until}, or it is revoked`,
    next: `Its user signs in and confirms it: ${url}`,
  };
}

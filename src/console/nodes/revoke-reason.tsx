// Words of a revocation: the field for its reason with what is sent, and what it does.

import { useState } from "preact/hooks";
import { Text } from "../ui/form.tsx";

/** The field, and the reason for each way to send it: `given` in a body, `query` in an address, `flags` in a command. */
export function useReason() {
  const [reason, setReason] = useState("");
  const why = reason.trim();
  return {
    field: (
      <Text
        label="Reason"
        help="Optional. It stands in the log, and whoever has the machine can read it."
        value={reason}
        set={setReason}
        control={{ maxlength: 500 }}
      />
    ),
    given: why === "" ? {} : { reason: why },
    query: why === "" ? "" : `?reason=${encodeURIComponent(why)}`,
    flags: why === "" ? [] : ["--reason", why],
  };
}

/** The effect of revoking one node, or several. */
export const revokingWords = (isOne: boolean, hasPhone = false) =>
  `Nodes that are online drop ${isOne ? "it" : "them"} within seconds, the others when they are back${hasPhone ? "; phones reach nothing then" : `, and ${isOne ? "its overlay stops" : "their overlays stop"}`}. Revoked nodes stay in the list under Revoked, and can be restored there. Names and addresses become free within 7 days.`;

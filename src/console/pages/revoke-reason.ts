// Why machines are revoked: a field, and what is sent of it.

import { useState } from "preact/hooks";
import { Text } from "../ui/form.ts";
import { html } from "../html.ts";

export function useReason() {
  const [reason, set] = useState("");
  const why = reason.trim();
  return {
    field: html`<${Text}
      label="Reason"
      help="Optional. It stands in the log, and the machine is told."
      value=${reason}
      set=${set}
      control=${{ maxlength: 500 }}
    />`,
    query: why === "" ? "" : `?reason=${encodeURIComponent(why)}`,
    flags: why === "" ? [] : ["--reason", why],
  };
}

/** What happens to names and addresses. */
export const afterRevoking =
  "Revoked machines stay in the list under Revoked, and can be restored there. Names and addresses become free within 7 days.";

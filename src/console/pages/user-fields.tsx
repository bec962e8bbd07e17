// Common fields of forms about users: those of staff, and those of the administrators of an organization.

import { leaverSettings } from "../../api/users.ts";
import { useState } from "preact/hooks";
import type { ApiError } from "../contact/api.ts";
import { Check, Text } from "../ui/form.tsx";

const endings = ["revoke_nodes", "revoke_tokens"] as const;

/** Other access that ends when a user is disabled or removed. `count`: of the nodes, if it is known. */
export function useEnding(count?: number) {
  const [body, setBody] = useState({ revoke_nodes: false, revoke_tokens: false });
  const fields = endings.map((field) => (
    <Check
      key={field}
      label={`${leaverSettings[field].label}${field === "revoke_tokens" || count === undefined ? "" : `: ${count}`}`}
      checked={body[field]}
      set={(isOn) => setBody({ ...body, [field]: isOn })}
    />
  ));
  const flags = endings.filter((field) => body[field]).map((field) => `--${leaverSettings[field].flag}`);
  return { fields, body, flags };
}

type NumberProps = { error: ApiError | undefined; value: string; set(text: string): void };

/** Shown once the control plane asks for it. */
export function OwnerNumber({ error, value, set }: NumberProps) {
  return error?.code !== "owner_unconfirmed" && value === "" ? null : (
    <Text
      label="Number of the user"
      help="Another user invited this user. Ask the new owner for the number on their Account page."
      value={value}
      set={set}
      control={{ type: "number", min: 1, required: true }}
    />
  );
}

// Common fields of forms about users: those of staff, and those of the administrators of an organization.

import { useState } from "preact/hooks";
import type { ApiError } from "../api.ts";
import { Check, Text } from "../ui/form.tsx";

/** Other access that ends when a user is disabled or removed. `count`: of the machines, if it is known. */
export function useEnding(count?: number) {
  const [nodes, setNodes] = useState(false);
  const [tokens, setTokens] = useState(false);
  return {
    fields: (
      <>
        <Check
          label={`Also revoke the machines that belong to them${count === undefined ? "" : `: ${count}`}`}
          checked={nodes}
          set={setNodes}
        />
        <Check
          label="Also revoke their tokens, and delete their webhooks. With both, also machines that came by these tokens"
          checked={tokens}
          set={setTokens}
        />
      </>
    ),
    body: { revoke_nodes: nodes, revoke_tokens: tokens },
    flags: [...(nodes ? ["--revoke-nodes"] : []), ...(tokens ? ["--revoke-tokens"] : [])],
  };
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

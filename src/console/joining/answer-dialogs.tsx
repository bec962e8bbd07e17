// The questions before machines that wait are approved or refused: one (`AnswerDialog`), or several (`AnswerTogether`).

import { registrationsApi } from "../../api/registrations.ts";
import { organizationsApi } from "../../api/organizations.ts";
import { registrationTokensApi } from "../../api/tokens/registration-tokens.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useMemo, useState } from "preact/hooks";
import { request, call } from "../contact/api.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useNodes } from "../nodes/node-list.ts";
import { keyOf, type Registration } from "./registrations.ts";
import { useOpen } from "./use-open.ts";
import { refresh, useList, useResource } from "../contact/resource.ts";
import { item } from "../words/terminal.ts";
import { isOnlyFor, nameOfKey, twiceIn } from "./token-words.ts";
import { Bulk } from "../ui/bulk.tsx";
import type { Verb } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Check } from "../ui/form.tsx";
import { FromTerminal, State } from "../ui/parts.tsx";
import { tell } from "../ui/toast.tsx";
import { isPhone, isSilent, silenceOf, twinWords, type Answer } from "./waiting-columns.tsx";
import { plural } from "../words/numbers.ts";

export const comparison = (
  <>
    Compare the key with the one that <code>agent up</code> or <code>agent register</code> shows on the
    machine
  </>
);

/** Makes the page say that the join keys of refused machines may still work. */
type Warns = { warn(isRefused: boolean): void };

/**
 * `twins`: the names that several have, waiting machines and nodes together. `tokens`: names of join keys by number. `open`: the
 * machines that wait; undefined before they are read.
 */
export function useTwinsAndTokens() {
  const slug = currentSlug.value ?? "";
  const isAsked = mayAdminister.value;
  const open = useOpen(slug);
  const { data: nodes } = useNodes();
  const { data: known } = useList(
    isAsked ? apiPath(registrationTokensApi.list, { slug }, { page_size: "1000" }) : "",
  );
  const twins = useMemo(
    () => twiceIn([...(open ?? []), ...(nodes ?? [])].map(({ name }) => name)),
    [open, nodes],
  );
  const tokens = useMemo(() => new Map((known ?? []).map((each) => [each.id, nameOfKey(each)])), [known]);
  return { twins, tokens, open };
}

/** The same answer to several. */
export function AnswerTogether({
  verb,
  machines,
  warn,
  close,
}: { verb: Verb; machines: readonly Registration[]; close(): void } & Warns) {
  const slug = currentSlug.value ?? "";
  const isApproval = verb === "approve";
  return (
    <Bulk
      action={`${isApproval ? "Approve" : "Refuse"} ${plural(machines.length, "node")}`}
      items={machines}
      isDanger={!isApproval}
      asksCount={true}
      hasNames={!isApproval}
      run={({ id }: Registration) => call(registrationsApi[verb], { slug, id })}
      after={() => {
        if (!isApproval) warn(true);
        return refresh(apiPath(organizationsApi.retrieve, { slug }));
      }}
      close={close}
    >
      <p>
        {isApproval
          ? "They join within seconds. Compare their keys with those that the machines show:"
          : "The machines are told so. Join keys still work."}
      </p>
      {isApproval ? (
        <ul>
          {machines.map((each) => (
            <li key={each.id}>
              <bdi>{each.name}</bdi> <code>{keyOf(each)}</code>
            </li>
          ))}
        </ul>
      ) : null}
      <FromTerminal
        command={["registration", verb, slug, item]}
        each={machines.map(({ id }) => id)}
        call={["POST", registrationsApi[verb].path.replace("{slug}", slug)]}
      />
    </Bulk>
  );
}

/** The path of a join key. `id` 0 stands for no key: the empty path, which sends no request. */
const tokenPathOf = (slug: string, id: number) =>
  id === 0 ? "" : apiPath(registrationTokensApi.retrieve, { slug, id });

type AnswerProps = Answer &
  Partial<Warns> & {
    /** The page shows the key, so it is not revoked unless the user wants that. */
    keepsKey?: boolean;
    close(): void;
  };

/** Asks before a machine is approved or refused. */
export function AnswerDialog({ verb, machine, warn, keepsKey = false, close }: AnswerProps) {
  const slug = currentSlug.value ?? "";
  const endpoint = verb === "approve" ? registrationsApi.approve : registrationsApi.refuse;
  const params = { slug, id: machine.id };
  const isApproval = verb === "approve";
  // The refusal of a machine that is approved already withdraws the approval.
  const body = machine.approved_at === null ? undefined : { state: "approved" as const };
  const action = `${isApproval ? "Approve" : "Refuse"} ${machine.name}`;
  // The join key, if refusing may revoke it.
  const tokenId = isApproval ? null : machine.registration_token_id;
  const { data: token, error } = useResource(tokenPathOf(slug, tokenId ?? 0));
  const { twins, open } = useTwinsAndTokens();
  const [endsToken, setEndsToken] = useState<boolean>();
  // Its default depends on the token.
  if (tokenId !== null && token === undefined && error === undefined) return null;
  const isTokenOver = token !== undefined && (endsToken ?? (!keepsKey && isOnlyFor(machine, token, open)));
  const command = ["registration", verb, slug, machine.id, ...(body === undefined ? [] : ["--approved"])];
  return (
    <Confirm
      title={`${action}?`}
      action={action}
      isDanger={!isApproval}
      effect={
        <>
          <p>
            {isApproval ? (
              <>
                It joins within seconds, with key <code>{keyOf(machine)}</code>.{" "}
                {isPhone(machine)
                  ? "A phone joins only if the page that asked is still open: if not, its user asks anew. If it is registered already, what it has now stops working."
                  : comparison}
              </>
            ) : (
              <>
                The machine with key <code>{keyOf(machine)}</code> is told that it was refused.
                {tokenId === null ? "" : " With its join key it, or another machine, can ask again."}
              </>
            )}
          </p>
          {isApproval && isSilent(machine, Date.now()) ? (
            <p>
              <State name="limited" word={silenceOf(machine)} />
            </p>
          ) : null}
          {twins.has(machine.name) ? (
            <p>
              <State name="attention" word={twinWords} />
            </p>
          ) : null}
          {token === undefined ? null : (
            <Check
              label={`Also revoke ${nameOfKey(token)}: no machine registers with it any more, not even one that waits`}
              checked={isTokenOver}
              set={setEndsToken}
            />
          )}
        </>
      }
      // Called after `sends` was answered. All that the page shows of the organization is read again.
      run={async () => {
        if (isTokenOver) await call(registrationTokensApi.revoke, { slug, id: tokenId ?? 0 });
        else if (tokenId !== null) warn?.(true);
        await refresh(apiPath(organizationsApi.retrieve, { slug }));
        tell(
          `${machine.name} is ${isApproval ? "approved. It is in Nodes when it has fetched its configuration." : "refused."}${isTokenOver ? " Its join key is revoked." : ""}`,
        );
      }}
      close={close}
      command={isTokenOver ? [command, ["token", "revoke", slug, token.id]] : command}
      sends={request(endpoint, params, body ?? {})}
    />
  );
}

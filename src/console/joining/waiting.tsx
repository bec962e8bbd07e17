// Nodes that wait for an administrator's approval: what each asks for, and the two answers.

import { registrationsApi } from "../../api/registrations.ts";
import { organizationSettings, organizationsApi } from "../../api/organizations.ts";
import { registrationTokensApi } from "../../api/tokens/registration-tokens.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useMemo, useState } from "preact/hooks";
import { request, call } from "../contact/api.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { useNodes } from "../nodes/node-list.ts";
import { approvedPath, keyOf, registrationsPath, type Registration } from "./registrations.ts";
import { useOpen } from "./use-open.ts";
import { refresh, useList, useResource } from "../contact/resource.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import { item } from "../words/terminal.ts";
import { isOnlyFor, nameOfKey, twiceIn } from "./token-words.ts";
import { Bulk } from "../ui/bulk.tsx";
import { Button, type Verb } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Check } from "../ui/form.tsx";
import { isNarrow } from "../ui/narrow.ts";
import { ordered } from "../ui/lists/order.ts";
import { Panel } from "../ui/page.tsx";
import { Empty, FromTerminal, Loading, State, When } from "../ui/parts.tsx";
import { Rows } from "../ui/lists/rows.tsx";
import { tell } from "../ui/toast.tsx";
import { Export, searched } from "../ui/lists/tools.tsx";
import type { Selection } from "../nodes/filter.ts";
import {
  columnsOf,
  isPhone,
  isSilent,
  narrowColumns,
  silenceOf,
  twinWords,
  type Answer,
} from "./waiting-columns.tsx";
import { plural } from "../words/numbers.ts";

const comparison = (
  <>
    Compare the key with the one that <code>agent up</code> or <code>agent register</code> shows on the
    machine
  </>
);

/** Makes the page say that the join keys of refused machines may still work. */
type Warns = { warn(isRefused: boolean): void };

/** Those that wait, below the search that all lists of nodes have. */
export function Waiting() {
  const slug = currentSlug.value ?? "";
  const { data, error, readAt = 0 } = useList(mayAdminister.value ? registrationsPath(slug) : "");
  const { twins, tokens } = useTwinsAndTokens();
  const owners = useMemberNames(slug);
  const order = query.value.get("order") ?? "name";
  const isFound = searched();
  const [selected, setSelected] = useState<Selection>(new Set());
  const [answer, setAnswer] = useState<Answer>();
  const [together, setTogether] = useState<{ verb: Verb; machines: readonly Registration[] }>();
  const [hasRefused, setRefused] = useState(false);
  const columns = useMemo(
    () => columnsOf({ twins, tokens, owners, readAt, give: setAnswer }),
    [twins, tokens, owners, readAt],
  );
  if (!mayAdminister.value) return <Empty text="Administrators of the organization approve nodes." />;
  if (data === undefined) return <Loading rows={4} error={error} />;
  const all = ordered(data, columns, order);
  const shown = all.filter((each) =>
    isFound([each.name, each.seen_from, ...each.groups, each.key_sha256].join(" ")),
  );
  const picked = shown.filter(({ id }) => selected.has(id));
  const chosen = picked.length === 0 ? shown : picked;
  const isNone = chosen.length === 0;
  return (
    <>
      <div class="one-line">
        <p class="quiet">
          {all.length === 0 ? null : (
            <>
              {comparison}; run again, it shows the same one. A machine that asks for anything else waits
              again.{" "}
            </>
          )}
          <WhichWait slug={slug} />
        </p>
        <span class="group tight">
          {all.length < 2 ? null : (
            <>
              <Button
                isSmall={true}
                disabled={isNone}
                onClick={() => setTogether({ verb: "refuse", machines: chosen })}
              >
                Refuse {plural(chosen.length, "node")}
              </Button>
              <Button
                kind="tint"
                isSmall={true}
                disabled={isNone}
                onClick={() => setTogether({ verb: "approve", machines: chosen })}
              >
                Approve {plural(chosen.length, "node")}
              </Button>
            </>
          )}
          {all.length === 0 || isNarrow.value ? null : (
            <Export
              file={`${slug}-waiting.csv`}
              items={chosen}
              columns={columns.slice(0, -1)}
              isSmall={true}
            />
          )}
        </span>
      </div>
      <div role="status">
        {hasRefused ? (
          <p class="notice">
            The join keys of refused machines may still work. Revoke them:{" "}
            <a href={pathOf(slug, "tokens")}>Keys and tokens</a>
          </p>
        ) : null}
      </div>
      {shown.length === 0 ? (
        <Empty text={all.length === 0 ? "No node waits for approval." : "None that waits is like that."} />
      ) : (
        <Rows
          label="Nodes that wait"
          items={shown}
          columns={isNarrow.value ? narrowColumns(columns) : columns}
          keyOf={({ id }: Registration) => id}
          order={order}
          setOrder={(next: string) => setQuery({ order: next === "name" ? undefined : next })}
          {...(all.length < 2 ? {} : { selected, select: setSelected })}
        />
      )}
      <Approved give={setAnswer} />
      {answer === undefined ? null : (
        <AnswerDialog {...answer} warn={setRefused} close={() => setAnswer(undefined)} />
      )}
      {together === undefined ? null : (
        <AnswerTogether {...together} warn={setRefused} close={() => setTogether(undefined)} />
      )}
    </>
  );
}

/** The setting that decides which nodes wait. */
function WhichWait({ slug }: { slug: string }) {
  const { data } = useResource(apiPath(organizationsApi.retrieve, { slug }));
  const { label, words, choices } = organizationSettings.node_approval as {
    label: string;
    words?: readonly string[];
    choices: readonly string[];
  };
  const at = (words ?? []).indexOf(data?.node_approval ?? "");
  return (
    <>
      {choices[at] === undefined ? null : `${label}: ${choices[at]}. `}
      <a href={pathOf(slug, "settings")}>Settings</a>
    </>
  );
}

/**
 * `twins`: the names that several have, waiting machines and nodes together. `tokens`: names of join keys by number. `open`: the
 * machines that wait; undefined before they are read.
 */
function useTwinsAndTokens() {
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
function AnswerTogether({
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
          : "The machines are told that they were refused. Their join keys still work."}
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
  // An approval that is withdrawn.
  const body = machine.approved_at === null ? undefined : { state: "approved" as const };
  const action = `${isApproval ? "Approve" : "Refuse"} ${machine.name}`;
  // The join key, if refusing may revoke it.
  const tokenId = isApproval ? null : machine.registration_token_id;
  const { data: token, error } = useResource(tokenPathOf(slug, tokenId ?? 0));
  const { twins, open = [] } = useTwinsAndTokens();
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

/** The approved machines that have not come back; usually none, because they come back within seconds. */
function Approved({ give }: { give(answer: Answer): void }) {
  const { data: machines = [] } = useList(approvedPath(currentSlug.value ?? ""));
  if (machines.length === 0) return null;
  return (
    <Panel title="Approved, not back yet">
      <p class="in quiet">
        A machine comes back within 30 s while its <code>agent up</code> or <code>agent register</code> waits.
        If not, run the same line there again: it goes on with the same key. If the line is lost, withdraw the
        approval.
      </p>
      <ul class="lines one-action">
        {machines.map((machine) => (
          <li key={machine.id}>
            <span>
              <bdi class="name">{machine.name}</bdi> <code>{keyOf(machine)}</code> approved{" "}
              <When at={machine.approved_at} />, has not come back yet
            </span>
            <Button isSmall={true} onClick={() => give({ verb: "refuse", machine })}>
              Withdraw<span class="unseen"> the approval of {machine.name}</span>
            </Button>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

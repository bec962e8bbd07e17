// Machines that wait for an administrator's approval: what each asks for, and the two answers.

import { countOf } from "../../base/duration.ts";
import { registrationsApi } from "../../api/node-calls.ts";
import { organizationSettings, organizationsApi, type Organization } from "../../api/organizations.ts";
import { registrationTokensApi } from "../../api/tokens.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { mayAdminister, slug } from "../me.ts";
import { useMemberNames } from "../member-names.ts";
import { useNodes } from "../node-list.ts";
import { refresh, useList, useResource } from "../resource.ts";
import { pathOf } from "../router.ts";
import { hasWords, searchWords } from "../search.ts";
import { item } from "../terminal.ts";
import { Bulk } from "../ui/bulk.tsx";
import { tell } from "../ui/told.tsx";
import { Export } from "../ui/tools.tsx";
import { Check, FormFailure, useAction } from "../ui/form.tsx";
import { Confirm } from "../ui/dialog.tsx";
import {
  Empty,
  type Fact,
  Facts,
  Failure,
  FromTerminal,
  Loading,
  State,
  valueOf,
  When,
} from "../ui/parts.tsx";
import { SettingField } from "../ui/setting-fields.tsx";
import { approvedPath, registrationsPath, type Registration } from "../registrations.ts";
import { isOnlyFor, nameOfKey, twiceIn } from "../token-words.ts";

type Answer = { verb: "approve" | "refuse"; machine: Registration };
/** Keep the request on the page if another answer may still work. */
type Said = { say(isRefused: boolean): void };

export function Waiting() {
  const own = slug.value ?? "";
  if (!mayAdminister.value)
    return (
      <>
        <h1>Approval</h1>
        <Empty text="Administrators of the organization approve machines." />
      </>
    );
  return (
    <>
      <p>
        <a href={pathOf(own, "machines")}>Machines</a>
      </p>
      <h1>Approval of machines</h1>
      <List />
      <h2>Which machines wait</h2>
      <Rule />
    </>
  );
}

function List() {
  const own = slug.value ?? "";
  const { data: machines, error, readAt = 0 } = useList(registrationsPath(own));
  const [answer, give] = useState<Answer | undefined>(undefined);
  const { twin } = useOpen();
  const [hasRefused, say] = useState(false);
  if (machines === undefined) return error === undefined ? <Loading rows={4} /> : <Failure error={error} />;
  return (
    <>
      <div role="status">
        {hasRefused ? (
          <p class="notice">
            The join keys of refused machines may still work. Revoke them:{" "}
            <a href={pathOf(own, "tokens")}>Tokens</a>
          </p>
        ) : null}
      </div>
      {machines.length === 0 ? (
        <Empty text="No machine waits for approval." />
      ) : (
        <>
          <p>
            Compare the key with the one that <code>agent up</code> or <code>agent register</code> shows on
            the machine; run again, it shows the same one. A machine that asks for anything else waits again.
          </p>
          <Together machines={machines} say={say} />
          {machines.map((machine) => (
            <One key={machine.id} machine={machine} twin={twin(machine.name)} readAt={readAt} give={give} />
          ))}
        </>
      )}
      <FromTerminal command={["registration", "list", own]} call={["GET", registrationsPath(own)]} />
      <Approved give={give} />
      {answer === undefined ? null : <Confirmed {...answer} say={say} close={() => give(undefined)} />}
    </>
  );
}

/** The requests that wait, or were approved and have not come back; and which names are there twice. */
function useOpen() {
  const own = slug.value ?? "";
  const { data: waiting = [] } = useList(registrationsPath(own));
  const { data: approved = [] } = useList(approvedPath(own));
  const { data: machines = [] } = useNodes();
  const open = [...waiting, ...approved];
  const twice = twiceIn([...open, ...machines].map(({ name }) => name));
  const twin = (name: string) =>
    twice.has(name) ? (
      <State name="attention" word="Another machine has this name, or asks for it: compare the key." />
    ) : null;
  return { open, twin };
}

const columns = [
  { title: "Name", text: ({ name }: Registration) => name },
  { title: "Key (SHA-256)", text: ({ key_sha256 }: Registration) => key_sha256 },
  { title: "Groups", text: ({ groups }: Registration) => groups.join(", ") },
  { title: "Seen from", text: ({ seen_from }: Registration) => seen_from },
  { title: "Asked", text: ({ created_at }: Registration) => created_at },
  { title: "Ends", text: ({ expires_at }: Registration) => expires_at },
];

/** The same answer to all of them, or to those of which the name or the address has a word. */
function Together({ machines, say }: { machines: readonly Registration[] } & Said) {
  const own = slug.value ?? "";
  const [words, type] = useState("");
  const [verb, ask] = useState<Answer["verb"] | undefined>(undefined);
  const wanted = searchWords(machines.length > 1 ? words : "");
  const chosen = machines.filter(({ name, seen_from, groups }) =>
    hasWords([name, seen_from, ...groups].join(" "), wanted),
  );
  const count = countOf(chosen.length, "machine");
  const title = verb === "refuse" ? `Refuse ${count}` : `Approve ${count}`;
  return (
    <>
      <div class="tools">
        {machines.length > 1 ? (
          <>
            <input
              type="search"
              aria-label="Only those whose name, group or address has"
              placeholder="Name, group or address"
              value={words}
              onInput={(event: Event) => type(valueOf(event))}
            />
            <button type="button" disabled={chosen.length === 0} onClick={() => ask("approve")}>
              Approve {count}
            </button>
            <button type="button" class="danger" disabled={chosen.length === 0} onClick={() => ask("refuse")}>
              Refuse {count}
            </button>
          </>
        ) : null}
        <Export file={`${own}-waiting.csv`} items={chosen} columns={columns} />
      </div>
      {verb === undefined ? null : (
        <Bulk
          action={title}
          items={chosen}
          isDanger={verb === "refuse"}
          asksCount={true}
          hasNames={verb === "refuse"}
          run={({ id }: Registration) => call(registrationsApi[verb], { slug: own, id })}
          after={() => {
            if (verb === "refuse") say(true);
            return refresh(apiPath(organizationsApi.retrieve, { slug: own }));
          }}
          close={() => ask(undefined)}
        >
          <p>
            {verb === "approve"
              ? "They join within seconds. Compare their keys with those that the machines show:"
              : "The machines are told that they were refused. Their join keys still work."}
          </p>
          {verb === "approve" ? (
            <ul class="plain-list">
              {chosen.map((each) => (
                <li key={each.id}>
                  <bdi>{each.name}</bdi> <code>{keyOf(each)}</code>
                </li>
              ))}
            </ul>
          ) : null}
          <FromTerminal
            command={["registration", verb, own, item]}
            each={chosen.map(({ id }) => id)}
            call={["POST", registrationsApi[verb].path.replace("{slug}", own)]}
          />
        </Bulk>
      )}
    </>
  );
}

/** Without any, the empty path. */
const tokenPathOf = (own: string, id: number) =>
  id === 0 ? "" : apiPath(registrationTokensApi.retrieve, { slug: own, id });

/** The fingerprint that the machine itself shows. */
const keyOf = ({ key_sha256 }: Registration) => key_sha256.slice(0, 16);

/** Without a token and without an agent. */
const isPhone = ({ registration_token_id, version }: Registration) =>
  registration_token_id === null && version === null;

/** Machines ask every 30 s at least, which is recorded every minute. */
const silentMs = 180_000;
const isSilent = ({ last_asked_at }: Registration, readAt: number) =>
  last_asked_at !== null && Date.parse(last_asked_at) < readAt - silentMs;

type OneProps = { machine: Registration; twin: VNode | null; readAt: number; give(answer: Answer): void };

function One({ machine, twin, readAt, give }: OneProps) {
  const own = slug.value ?? "";
  const owner = useMemberNames(own).get(machine.owner_id ?? 0);
  const id = machine.registration_token_id ?? 0;
  // One that was revoked meanwhile has only its number.
  const { data: token = { id, name: null } } = useResource(tokenPathOf(own, id));
  const roles = [machine.is_lighthouse ? "lighthouse" : "", machine.is_relay ? "relay" : ""];
  const facts: readonly Fact[] = [
    ["Key", <code>{keyOf(machine)}</code>],
    ["Groups", machine.groups.join(", ") || "none"],
    ["Roles", roles.filter((role) => role !== "").join(", ") || "none"],
    ["Owner", machine.owner_id === null ? "the organization" : (owner ?? `user ${machine.owner_id}`)],
    [
      "Join key",
      machine.registration_token_id === null ? (
        "none"
      ) : (
        <a href={pathOf(own, "tokens")}>
          <bdi>{nameOfKey(token)}</bdi>
        </a>
      ),
    ],
    ["Seen from", machine.seen_from],
    ["System", [machine.platform, machine.version].filter((each) => each !== null).join(", ") || "unknown"],
    [
      "Asked",
      <>
        <When at={machine.created_at} />
        {isSilent(machine, readAt) ? (
          <>
            ; not since <When at={machine.last_asked_at} />{" "}
            {isPhone(machine) ? (
              <State
                name="attention"
                word="Its page is closed or asleep. A closed one has lost the key: refuse it."
              />
            ) : (
              "(its command does not run)"
            )}
          </>
        ) : null}
      </>,
    ],
    ["The request lapses", <When at={machine.expires_at} />],
  ];
  const buttons = (["approve", "refuse"] as const).map((verb) => (
    <button
      type="button"
      key={verb}
      class={verb === "approve" ? "primary" : "danger"}
      onClick={() => give({ verb, machine })}
    >
      {verb === "approve" ? "Approve" : "Refuse"}
      <span class="unseen"> {machine.name}</span>
    </button>
  ));
  return (
    <section class="notice">
      <h2>
        <bdi>{machine.name}</bdi>
      </h2>
      {twin}
      <Facts facts={facts} />
      <div class="actions">{buttons}</div>
    </section>
  );
}

function Confirmed({ verb, machine, say, close }: Answer & Said & { close(): void }) {
  const own = slug.value ?? "";
  const endpoint = verb === "approve" ? registrationsApi.approve : registrationsApi.refuse;
  const params = { slug: own, id: machine.id };
  const isApproval = verb === "approve";
  // An approval that is withdrawn.
  const body = machine.approved_at === null ? undefined : { state: "approved" as const };
  const action = `${isApproval ? "Approve" : "Refuse"} ${machine.name}`;
  const id = isApproval ? null : machine.registration_token_id;
  const { data: token, error } = useResource(tokenPathOf(own, id ?? 0));
  const { open, twin } = useOpen();
  const [chosen, endToken] = useState<boolean | undefined>(undefined);
  // Its default depends on the token.
  if (id !== null && token === undefined && error === undefined) return null;
  const isTokenOver = token !== undefined && (chosen ?? isOnlyFor(machine, token, open));
  const command = ["registration", verb, own, machine.id, ...(body === undefined ? [] : ["--approved"])];
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
                It joins within seconds, with key <code>{keyOf(machine)}</code>. It can be revoked afterwards.{" "}
                {isPhone(machine)
                  ? "A phone joins only if the page that asked is still open: if not, its user asks anew. If it is registered already, what it has now stops working."
                  : null}
              </>
            ) : (
              <>
                The machine with key <code>{keyOf(machine)}</code> is told that it was refused.
                {id === null ? "" : " With its join key it, or another machine, can ask again."}
              </>
            )}
          </p>
          {twin(machine.name)}
          {token === undefined ? null : (
            <Check
              label={`Also revoke ${nameOfKey(token)}: no machine registers with it any more, not even one that waits`}
              checked={isTokenOver}
              set={endToken}
            />
          )}
          <FromTerminal
            command={isTokenOver ? [command, ["token", "revoke", own, token.id]] : command}
            call={["POST", apiPath(endpoint, params), body]}
          />
        </>
      }
      run={async () => {
        await call(endpoint, params, body ?? {});
        if (isTokenOver) await call(registrationTokensApi.revoke, { slug: own, id: id ?? 0 });
        else if (id !== null) say(true);
        await refresh(apiPath(organizationsApi.retrieve, { slug: own }));
        tell(
          `${machine.name} is ${isApproval ? "approved" : "refused"}.${isTokenOver ? " Its join key is revoked." : ""}`,
        );
      }}
      close={close}
    />
  );
}

/** Usually none: an approved machine comes back within seconds. */
function Approved({ give }: { give(answer: Answer): void }) {
  const { data: machines = [] } = useList(approvedPath(slug.value ?? ""));
  if (machines.length === 0) return null;
  return (
    <>
      <h2>Approved, not back yet</h2>
      <p>
        A machine comes back within 30 s while its <code>agent up</code> or <code>agent register</code> waits.
        If not, run the same line there again: it goes on with the same key. If the line is lost, withdraw the
        approval.
      </p>
      <ul class="plain-list">
        {machines.map((machine) => (
          <li key={machine.id}>
            <bdi>{machine.name}</bdi> <code>{keyOf(machine)}</code> approved <When at={machine.approved_at} />
            , has not come back yet{" "}
            <button type="button" class="small" onClick={() => give({ verb: "refuse", machine })}>
              Withdraw<span class="unseen"> the approval of {machine.name}</span>
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

type Approval = Organization["node_approval"];

/** The setting of the organization. */
function Rule() {
  const own = slug.value ?? "";
  const path = apiPath(organizationsApi.retrieve, { slug: own });
  const { data, error } = useResource(path);
  const [chosen, choose] = useState<Approval | undefined>(undefined);
  const wanted = chosen ?? data?.node_approval ?? "none";
  const change = { node_approval: wanted };
  const saving = useAction(async () => {
    await call(organizationsApi.update, { slug: own }, change);
    await refresh(path);
    choose((now) => (now === wanted ? undefined : now));
    tell("Saved.");
  });
  if (data === undefined) return error === undefined ? <Loading rows={2} /> : <Failure error={error} />;
  return (
    <form class="narrow" onSubmit={saving.submit}>
      <SettingField
        field="node_approval"
        setting={organizationSettings.node_approval}
        present={data}
        now={change}
        error={saving.error}
        set={({ node_approval }: typeof change) => choose(node_approval)}
      />
      <FormFailure error={saving.error} shown={["node_approval"]} />
      <div class="actions">
        <button class="primary" disabled={saving.isRunning || wanted === data.node_approval}>
          Save
        </button>
      </div>
      <FromTerminal command={["org", "update", own, "--approval", wanted]} call={["PATCH", path, change]} />
    </form>
  );
}

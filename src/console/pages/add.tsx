// Adds a node in three steps: what it is, the line with the join key to paste on its machine, and its arrival.

import { organizationsApi } from "../../api/organizations.ts";
import { countOf, inWords, parseDuration } from "../../base/duration.ts";
import { registrationsApi } from "../../api/node-calls.ts";
import { nodesApi } from "../../api/nodes.ts";
import { pathsApi } from "../../api/paths.ts";
import { rulesApi } from "../../api/rules.ts";
import { registrationTokensApi } from "../../api/tokens.ts";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import "../core.ts";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { reachOf, standingOf, type Standee } from "../access/standing.ts";
import { call, type ApiError } from "../api.ts";
import { useLog } from "../events.ts";
import { partsOf, sentencesOf } from "../field-parts.ts";
import { onSeen } from "../live.ts";
import { mayAddOwn, mayAdminister, me, organization, slug } from "../me.ts";
import { useNodes } from "../node-list.ts";
import { registrationsPath, type Registration } from "../registrations.ts";
import { refresh, useList, useResource } from "../resource.ts";
import { nameOfKey, twiceIn } from "../token-words.ts";
import { pathOf, query, setQuery } from "../router.ts";
import type { Terminal, Words } from "../terminal.ts";
import { exact, timeFormat, utc } from "../times.ts";
import { Button, Segments } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import type { IconName, SignName } from "../ui/drawings.ts";
import { Check, FormFailure, Text, useAction } from "../ui/form.tsx";
import { Icon, Sign } from "../ui/icon.tsx";
import { Page, Panel, Step } from "../ui/page.tsx";
import { Empty, FromTerminal, Line } from "../ui/parts.tsx";
import { Qr } from "../ui/qr.tsx";
import { Tag } from "../ui/tag.tsx";
import { GroupsField } from "./groups-field.tsx";

type Token = SentOf<typeof registrationTokensApi.create>;
type Kind = "server" | "lighthouse" | "own" | "phone";

const kinds: Readonly<Record<Kind, readonly [icon: IconName, title: string, help: string]>> = {
  server: ["machines", "Server", "A machine or container"],
  lighthouse: ["lighthouse", "Lighthouse", "With a public address"],
  own: ["laptop", "My own", "Confirmed by you, no key"],
  phone: ["phone", "Phone", "A file for the app"],
};

/** What the join key will be for. Durations are as they were typed. */
type Draft = { groups: string; uses: string; expires: string; name: string; isApproved: boolean };

function bodyOf({ groups, uses, expires, name, isApproved }: Draft, kind: Kind) {
  return {
    ...(name.trim() === "" ? {} : { name: name.trim() }),
    uses: Number(uses),
    expires_in: expires,
    groups: partsOf(groups),
    is_lighthouse: kind === "lighthouse",
    ...(isApproved ? { approved: true } : {}),
  };
}

function wordsOf(
  own: string,
  { name, uses, expires_in, groups, is_lighthouse, approved }: ReturnType<typeof bodyOf>,
): Words {
  return [
    "token",
    "create",
    own,
    ...(name === undefined ? [] : ["--name", name]),
    ...groups.flatMap((group) => ["--group", group]),
    ...(uses === 1 ? [] : ["--uses", uses]),
    "--expires",
    expires_in,
    ...(is_lighthouse ? ["--lighthouse"] : []),
    ...(approved === true ? ["--approved"] : []),
  ];
}

/** Which new nodes wait for an administrator. */
const useApproval = (own: string) =>
  useResource(apiPath(organizationsApi.retrieve, { slug: own })).data?.node_approval ?? "none";

const mustWait = (approval: ReturnType<typeof useApproval>, isApproved: boolean) =>
  approval === "all" || (approval === "unapproved" && !isApproved);

export function AddNode() {
  const own = slug.value ?? "";
  const [draft, setDraft] = useState<Draft>({
    groups: "",
    uses: "1",
    expires: "1h",
    name: "",
    isApproved: false,
  });
  const [token, setToken] = useState<Token | undefined>(undefined);
  const [joined, setJoined] = useState<Joined | undefined>(undefined);
  const offered: Kind[] = [
    ...(mayAdminister.value ? (["server", "lighthouse"] as const) : []),
    ...(mayAddOwn.value ? (["own", "phone"] as const) : []),
  ];
  const kind = offered.find((each) => each === query.value.get("kind")) ?? offered[0];
  const above = (
    <>
      <a href={pathOf(own, "machines")}>Nodes</a>
      <Icon name="right" />
    </>
  );
  if (kind === undefined)
    return (
      <Page title="Add a node" above={above}>
        <Empty text="Administrators of the organization add nodes." />
      </Page>
    );
  const body = bodyOf(draft, kind);
  const isOwn = kind === "own" || kind === "phone";
  const terminal: Terminal | undefined = isOwn
    ? undefined
    : {
        command: wordsOf(own, body),
        call: ["POST", apiPath(registrationTokensApi.create, { slug: own }), body],
      };
  return (
    <Page title="Add a node" above={above} terminal={terminal}>
      <div class="start">
        <ol class="steps">
          {token === undefined ? (
            <Step at={1} title="What" state="here">
              <Kinds offered={offered} kind={kind} />
              {isOwn ? null : <Choices {...{ draft, setDraft, kind }} made={setToken} />}
            </Step>
          ) : (
            <Step at={1} title="What" state="done">
              <Made token={token} again={() => (setToken(undefined), setJoined(undefined))} />
            </Step>
          )}
          {isOwn ? (
            <Step at={2} title={kind === "own" ? "Type a line on it" : "Make its file"} state="here">
              {kind === "own" ? <OwnLine /> : <PhoneLink />}
            </Step>
          ) : token === undefined ? (
            <>
              <Step at={2} title="Paste a line on it" state="later">
                <p class="faint">Linux, macOS, Windows; or a QR code.</p>
              </Step>
              <Step at={3} title="See it arrive" state="later">
                <p class="faint">Here, as it happens.</p>
              </Step>
            </>
          ) : (
            <Arrival
              token={token}
              joined={joined}
              setJoined={setJoined}
              again={() => (setToken(undefined), setJoined(undefined))}
            />
          )}
        </ol>
        <aside class="stackd">
          <Gets
            groups={isOwn ? [] : body.groups}
            ownerId={isOwn ? (me.value?.id ?? null) : null}
            address={joined?.address}
          />
          <Panel title="What leaves the machine" hasRoom={true}>
            <p class="quiet">
              {kind === "phone"
                ? "Its public key and name. The private key is made in this browser and goes into the file, nowhere else."
                : "Its public key, name, system and addresses. The private key is made there and stays there."}
            </p>
          </Panel>
        </aside>
      </div>
    </Page>
  );
}

const Kinds = ({ offered, kind }: { offered: readonly Kind[]; kind: Kind }) => (
  <fieldset class="choices">
    <legend class="unseen">What is it?</legend>
    {offered.map((each) => {
      const [icon, title, help] = kinds[each];
      return (
        <label key={each} class="choice">
          <input type="radio" name="kind" checked={each === kind} onChange={() => setQuery({ kind: each })} />
          <Icon name={icon} />
          {title}
          <small>{help}</small>
        </label>
      );
    })}
  </fieldset>
);

/** Without a key: the user confirms the machine on the page `join`. */
const OwnLine = () => (
  <>
    <p class="quiet">
      It needs no key: type this there, open the address that it shows, and sign in. The node will be yours.
    </p>
    <div class="mt8">
      <Line text={`sudo agent up ${location.origin} --org ${slug.value ?? ""}`} />
    </div>
  </>
);

const PhoneLink = () => (
  <>
    <p class="quiet">Best open the page on the phone itself: the file holds its private key.</p>
    <p class="group mt8">
      <Button kind="primary" href={pathOf(slug.value ?? "", "phones")}>
        Add a phone
      </Button>
    </p>
  </>
);

type ChoicesProps = {
  draft: Draft;
  setDraft(draft: Draft): void;
  kind: Kind;
  made(token: Token): void;
};

/** What most people leave as it is, is a sentence whose words open their fields. */
const rare = ["uses", "expires", "name"] as const;

function Choices({ draft, setDraft, kind, made }: ChoicesProps) {
  const own = slug.value ?? "";
  const approval = useApproval(own);
  const [isOpen, open] = useState<Partial<Record<(typeof rare)[number] | "isApproved", boolean>>>({});
  const body = bodyOf(draft, kind);
  const { error, isRunning, submit } = useAction(async () => {
    made(await call(registrationTokensApi.create, { slug: own }, body));
  });
  const seconds = parseDuration(draft.expires);
  const hours = seconds === undefined ? draft.expires : seconds === 3600 ? "1 hour" : inWords(seconds * 1000);
  const word = (field: keyof typeof isOpen, words: string) => (
    <button
      type="button"
      class="plain as-link"
      aria-expanded={isOpen[field] === true}
      onClick={() => open({ ...isOpen, [field]: isOpen[field] !== true })}
    >
      {words}
    </button>
  );
  const field = (
    name: (typeof rare)[number],
    key: string,
    label: string,
    help: string | undefined,
    control: Readonly<Record<string, unknown>>,
  ) =>
    isOpen[name] === true || error?.fields[key] !== undefined ? (
      <Text
        label={label}
        help={help}
        errors={error?.fields[key]}
        value={draft[name]}
        set={(text: string) => setDraft({ ...draft, [name]: text })}
        control={control}
      />
    ) : null;
  return (
    <form onSubmit={submit} class="w440">
      <GroupsField
        label="Groups"
        errors={sentencesOf(error?.fields, "groups", body.groups)}
        value={draft.groups}
        set={(groups) => setDraft({ ...draft, groups })}
      />
      {kind === "lighthouse" ? (
        <p class="quiet">The others find each other through it. Its UDP port must be open to all of them.</p>
      ) : null}
      <p class="mt8">
        For {word("uses", countOf(Number(draft.uses), "node"))}, the key ends in {word("expires", hours)}
        {approval === "unapproved" ? (
          <>
            , and {word("isApproved", draft.isApproved ? "nobody approves" : "an administrator approves")}{" "}
            each
          </>
        ) : approval === "all" ? (
          ", and an administrator approves each"
        ) : null}
        . It has{" "}
        {draft.name.trim() === "" ? word("name", "no name") : <>the name {word("name", draft.name)}</>}.
      </p>
      <div class="mt8">
        {field("uses", "uses", "How many nodes", undefined, {
          type: "number",
          min: 1,
          max: 1_000_000,
          required: true,
        })}
        {field("expires", "expires_in", "The join key is valid for", "Such as 1h, 48h or 7d.", {
          required: true,
        })}
        {isOpen.isApproved === true ? (
          <Check
            label="They need no approval: whoever has the join key can join at once"
            checked={draft.isApproved}
            set={(isApproved) => setDraft({ ...draft, isApproved })}
          />
        ) : null}
        {field("name", "name", "Name of the join key", "Optional.", { maxlength: 100 })}
      </div>
      <FormFailure error={error} shown={["groups", "uses", "expires_in", "name"]} />
      <p class="group mt8">
        <button class="primary" disabled={isRunning}>
          Make the join key
        </button>
        <kbd class="no-phone">Enter</kbd>
      </p>
    </form>
  );
}

const atTime = (at: number) => (
  <time datetime={utc(at)} title={exact(at)}>
    {timeFormat({ timeStyle: "medium" }).format(at)}
  </time>
);
const onDay = (at: number) => timeFormat({ dateStyle: "long" }).format(at);

/** The first step, when it is done: roles and groups that the key gives, and when it ends. */
function Made({ token, again }: { token: Token; again(): void }) {
  const { uses, groups, is_lighthouse, expires_at } = token;
  const end = Date.parse(expires_at);
  return (
    <p class="quiet">
      {countOf(uses, "node")}
      {groups.length === 0 ? ", in no group" : " in "}
      {groups.map((group) => (
        <Tag key={group} text={group} />
      ))}
      {is_lighthouse ? ", as a lighthouse" : ""}; key until{" "}
      <time datetime={utc(end)} title={exact(end)}>
        {timeFormat(
          end - Date.now() < 20 * 3_600_000
            ? { timeStyle: "short" }
            : { dateStyle: "medium", timeStyle: "short" },
        ).format(end)}
      </time>
      .{" "}
      <button type="button" class="plain as-link" onClick={again}>
        Make another join key
      </button>
    </p>
  );
}

type System = "unix" | "windows" | "qr" | "script";
const systems = [
  ["unix", "Linux, macOS"],
  ["windows", "Windows"],
  ["qr", "QR code"],
  ["script", "Script"],
] as const;

/** The line to paste. `agent up` takes only keys for one machine and an hour as a word of its command line. */
function Paste({ token }: { token: Token }) {
  const [system, choose] = useState<System>("unix");
  const [isApart, setApart] = useState(false);
  const lifeMs = Date.parse(token.expires_at) - Date.parse(token.created_at);
  const mayStandInLine = token.uses === 1 && lifeMs <= 3_600_000;
  const up = system === "windows" ? "agent up" : "sudo agent up";
  return (
    <>
      <div class="mt8">
        <Segments label="System" value={system} choices={systems} set={(word) => choose(word)} />
      </div>
      {lines()}
      <p class="help">
        The join key is shown only now. It is “<bdi>{nameOfKey(token)}</bdi>” under{" "}
        <a href={pathOf(slug.value ?? "", "tokens")}>Tokens</a>, where it can be revoked.
      </p>
    </>
  );

  function lines() {
    if (system === "qr")
      return (
        <>
          <p class="quiet mt8">For a device with a camera. It holds the same key: keep it as secret.</p>
          <Qr text={token.join_key} label="The join key as a QR code" />
        </>
      );
    if (system === "script")
      return (
        <>
          <p class="quiet mt8">Without agent up, for scripts:</p>
          <Command text={token.command} />
        </>
      );
    return (
      <>
        {system === "unix" ? (
          <>
            <p class="quiet mt8">If the program is not there yet, this installs it:</p>
            <Command text={`curl -fsSL ${location.origin}/releases/install | sh`} />
          </>
        ) : (
          <p class="quiet mt8">
            In a terminal of an administrator, with the program and its driver (agent install-tap) installed.
          </p>
        )}
        {isApart || !mayStandInLine ? (
          <>
            <p class="quiet mt8">Then this joins:</p>
            <Command text={up} />
            <p class="quiet mt8">
              It asks for this key{mayStandInLine ? "" : ", which may not stand on a command line"}:
            </p>
            <Command text={token.join_key} />
          </>
        ) : (
          <>
            <p class="quiet mt8">Then this joins. The key is in it, and works once:</p>
            <Command text={`${up} ${token.join_key}`} isMain={true} />
            <p class="help">
              <button type="button" class="plain as-link" onClick={() => setApart(true)}>
                Keep the key out of the shell's history
              </button>
            </p>
          </>
        )}
      </>
    );
  }
}

const Command = (line: { text: string; isMain?: boolean }) => (
  <div class="mt8">
    <Line {...line} />
  </div>
);

type Joined = { id: number; name: string; address: string };

/** Events of one request. */
const atOnce = 200;

type ArrivalProps = {
  token: Token;
  joined: Joined | undefined;
  setJoined(joined: Joined): void;
  again(): void;
};

/** The second and the third step: the line, and who comes with its key. */
function Arrival({ token, joined, setJoined, again }: ArrivalProps) {
  const own = slug.value ?? "";
  const waits = mustWait(useApproval(own), token.approved);
  const { data: open = [] } = useList(registrationsPath(own));
  const asking = open.filter(({ registration_token_id: id }) => id === token.id);
  const asked = useRef<Registration | undefined>(undefined);
  asked.current = asking[0] ?? asked.current;
  // Reads the log, because the stream of events may just be closed.
  const { events } = useLog(own, atOnce);
  const used = events
    .filter(({ type, subject }) => type === "token.used" && subject === `registration_token/${token.id}`)
    .map(({ after, at }) => ({ id: Number(after?.["node_id"]), at: Date.parse(at) }))
    .toReversed();
  const nameOf = (id: number) => {
    const event = events.find((each) => each.type === "node.registered" && each.subject === `node/${id}`);
    return String(event?.after?.["name"] ?? `node ${id}`);
  };
  const approved = events.find(
    ({ type, subject }) =>
      type === "registration.approved" && subject === `registration/${asked.current?.id}`,
  );
  const isUsed = used.length >= token.uses;
  const [only] = token.uses === 1 ? used : [];
  const paste = isUsed ? (
    <Step at={2} title="Pasted" state="done">
      <p class="quiet">
        Used at {atTime(used.at(-1)?.at ?? 0)}
        {token.uses === 1 && asked.current !== undefined ? (
          <>
            {" "}
            from <bdi>{asked.current.seen_from}</bdi>
          </>
        ) : null}
        . The key is worth nothing now.
      </p>
    </Step>
  ) : (
    <Step at={2} title="Paste a line on it" state="here">
      <Paste token={token} />
    </Step>
  );
  return (
    <>
      {paste}
      <Step
        at={3}
        title={
          only === undefined ? (
            "See it arrive"
          ) : (
            <>
              <bdi>{nameOf(only.id)}</bdi> is in
            </>
          )
        }
        state={isUsed ? "done" : "here"}
      >
        {token.uses === 1 ? (
          <One {...{ token, waits, only, asked: asked.current, setJoined }} isAsking={asking.length > 0}>
            {approved === undefined ? null : (
              <Moment sign="on" at={Date.parse(approved.at)}>
                Approved
              </Moment>
            )}
          </One>
        ) : (
          <Many own={own} uses={token.uses} used={used} nameOf={nameOf} />
        )}
        {token.uses === 1
          ? null
          : asking.map((each) => (
              <ol class="live" key={each.id}>
                <Asks machine={each} />
              </ol>
            ))}
        {joined === undefined ? null : (
          <>
            <p class="quiet mt12">Try it from another node:</p>
            <Command text={`ping -c 3 ${joined.address}`} />
          </>
        )}
        {only === undefined && !isUsed ? null : (
          <p class="group mt12">
            {only === undefined ? null : (
              <Button kind="primary" href={pathOf(own, "machines", only.id)}>
                Open <bdi>{nameOf(only.id)}</bdi>
              </Button>
            )}
            <Button onClick={again}>Add another like it</Button>
          </p>
        )}
      </Step>
    </>
  );
}

type MomentProps = { sign?: SignName; isNow?: boolean; at?: number | undefined; children: ComponentChildren };

/** A line of what happens: done, under way now, or to come. */
const Moment = ({ sign, isNow, at, children }: MomentProps) => (
  <li>
    {sign !== undefined ? <Sign name={sign} /> : isNow === true ? <span class="spin" /> : <span />}
    <span class={sign === undefined ? "faint" : ""}>{children}</span>
    {at === undefined ? <span /> : atTime(at)}
  </li>
);

type OneProps = {
  token: Token;
  waits: boolean;
  only: { id: number; at: number } | undefined;
  asked: Registration | undefined;
  isAsking: boolean;
  setJoined(joined: Joined): void;
  /** That it was approved. */
  children: ComponentChildren;
};

/** What happens to a machine from its key to its first packet. */
function One({ token, waits, only, asked, isAsking, setJoined, children }: OneProps) {
  const own = slug.value ?? "";
  const path = only === undefined ? "" : apiPath(nodesApi.retrieve, { slug: own, id: only.id });
  const { data: node } = useResource(path);
  const peersPath = only === undefined ? "" : apiPath(pathsApi.ofNode, { slug: own, id: only.id });
  const { data: peers = [] } = useResource(peersPath);
  const { data: nodes = [] } = useNodes();
  // Check-ins are no events of the log.
  useEffect(
    () =>
      onSeen((contacts) => {
        if (only !== undefined && contacts.some(([id]) => id === only.id)) void refresh(path);
      }),
    [path],
  );
  useEffect(() => {
    if (node !== undefined) setJoined({ id: node.id, name: node.name, address: node.ip_address });
  }, [node?.id]);
  const end = node?.certificate?.not_after;
  const answers = peers.find(
    ({ peer, probe }) =>
      probe === "answers" && nodes.some(({ id, is_lighthouse }) => id === peer && is_lighthouse),
  );
  const hasLighthouse =
    !token.is_lighthouse && nodes.some(({ is_lighthouse, id }) => is_lighthouse && id !== only?.id);
  return (
    <div role="status">
      <ol class="live mt8">
        {only === undefined && asked === undefined ? (
          <Moment isNow={true}>Waiting for the machine.</Moment>
        ) : (
          <Moment sign="on" at={asked === undefined ? only?.at : Date.parse(asked.created_at)}>
            {asked === undefined ? (
              "The key was used"
            ) : (
              <>
                The key was used by{" "}
                <b>
                  <bdi>{asked.name}</bdi>
                </b>{" "}
                from <bdi>{asked.seen_from}</bdi>
              </>
            )}
          </Moment>
        )}
        {isAsking && asked !== undefined ? <Asks machine={asked} /> : children}
        {waits && asked === undefined && only === undefined ? (
          <Moment>Each node waits until an administrator approves it, here.</Moment>
        ) : null}
        {only === undefined || node === undefined || end === undefined ? (
          <Moment isNow={only !== undefined || (asked !== undefined && !isAsking)}>
            It gets its certificate and address
          </Moment>
        ) : (
          <Moment sign="on" at={only.at}>
            Certificate until {onDay(Date.parse(end))}, address <code>{node.ip_address}</code>
          </Moment>
        )}
        {answers !== undefined ? (
          <Moment sign="on" at={Date.parse(answers.reported_at)}>
            <bdi>{answers.peer_name}</bdi> answers it through the tunnel
            {answers.rtt_ms === null ? "" : ` in ${answers.rtt_ms.toPrecision(2)} ms`}
          </Moment>
        ) : node?.online === true && !hasLighthouse ? (
          <Moment sign="on" at={node.last_checkin_at === null ? undefined : Date.parse(node.last_checkin_at)}>
            It is online
          </Moment>
        ) : (
          <Moment isNow={node !== undefined}>
            {hasLighthouse ? "A lighthouse answers it through the tunnel" : "It is online"}
          </Moment>
        )}
      </ol>
    </div>
  );
}

/** A request, with what decides about it. */
function Asks({ machine }: { machine: Registration }) {
  const own = slug.value ?? "";
  const [isRefusing, refuse] = useState(false);
  const { data: open = [] } = useList(registrationsPath(own));
  const { data: nodes = [] } = useNodes();
  const isTwin =
    twiceIn(open.map(({ name }) => name)).has(machine.name) ||
    nodes.some(({ name }) => name === machine.name);
  const params = { slug: own, id: machine.id };
  const after = () => refresh(registrationsPath(own));
  const approval = useAction(async () => {
    await call(registrationsApi.approve, params);
    await after();
  });
  const key = machine.key_sha256.slice(0, 16);
  return (
    <li>
      <Sign name="wait" />
      <span>
        <bdi>{machine.name}</bdi> asks to join. Compare its key:{" "}
        <code>{key.replace(/(.{4})(?=.)/g, "$1 ")}</code>
        {isTwin ? (
          <span class="is-bad"> Another machine has this name: one of them may be an impostor.</span>
        ) : null}
        <Failures error={approval.error} />
      </span>
      <span class="group tight">
        <Button isSmall={true} onClick={() => refuse(true)}>
          Refuse<span class="unseen"> {machine.name}</span>
        </Button>
        <Button isSmall={true} kind="tint" disabled={approval.isRunning} onClick={approval.run}>
          Approve<span class="unseen"> {machine.name}</span>
        </Button>
        {isRefusing ? (
          <Confirm
            title={`Refuse ${machine.name}?`}
            action={`Refuse ${machine.name}`}
            effect={
              <>
                <p>
                  The machine with key <code>{key}</code> is told that it was refused. With its join key it,
                  or another machine, can ask again.
                </p>
                <FromTerminal
                  command={["registration", "refuse", own, machine.id]}
                  call={["POST", apiPath(registrationsApi.refuse, params), {}]}
                />
              </>
            }
            run={async () => {
              await call(registrationsApi.refuse, params, {});
              await after();
            }}
            close={() => refuse(false)}
          />
        ) : null}
      </span>
    </li>
  );
}

const Failures = ({ error }: { error: ApiError | undefined }): VNode | null =>
  error === undefined ? null : <FormFailure error={error} />;

type ManyProps = {
  own: string;
  uses: number;
  used: readonly { id: number; at: number }[];
  nameOf(id: number): string;
};

const Many = ({ own, uses, used, nameOf }: ManyProps) => (
  <div role="status">
    <ol class="live mt8">
      {used.length < uses ? (
        <Moment isNow={true}>
          {used.length === 0 ? "Waiting for the machines." : `${used.length} of ${uses} have joined.`}
        </Moment>
      ) : null}
      {used.map(({ id, at }) => (
        <Moment key={id} sign="on" at={at}>
          <a class="name" href={pathOf(own, "machines", id)}>
            <bdi>{nameOf(id)}</bdi>
          </a>{" "}
          joined
        </Moment>
      ))}
    </ol>
  </div>
);

type GetsProps = { groups: readonly string[]; ownerId: number | null; address: string | undefined };

/** What a node of these groups will have, by the rules of now. */
function Gets({ groups, ownerId, address }: GetsProps) {
  const own = slug.value ?? "";
  const { data: rules } = useList(apiPath(rulesApi.list, { slug: own }, { page_size: "1000" }));
  const { data: nodes, isWhole } = useNodes();
  const key = groups.join();
  const found = useMemo(() => {
    if (rules === undefined || nodes === undefined || !isWhole) return undefined;
    const asStandee = ({ id, groups: all, subnets, ownerId: owner_id }: (typeof nodes)[number]): Standee => ({
      id,
      groups: all,
      owner_groups: [],
      subnets,
      owner_id,
    });
    const it: Standee = { id: 0, groups: [...groups], owner_groups: [], subnets: [], owner_id: ownerId };
    const others = nodes.filter(({ ip_address, state }) => ip_address !== address && state === "active");
    const { letsIn, letIn, letsOut } = standingOf(rules, it);
    return {
      ...reachOf(rules, it, others.map(asStandee)),
      rules: new Set([...letsIn, ...letIn, ...letsOut]).size,
    };
  }, [rules, nodes, isWhole, key, ownerId, address]);
  return (
    <Panel title={address === undefined ? "What it gets" : "What it got"} hasRoom={true}>
      <dl class="facts">
        <dt>Address</dt>
        <dd>
          {address === undefined ? (
            <span>
              a free one of <span class="mono">{organization.value?.network}</span>
            </span>
          ) : (
            <span class="mono">{address}</span>
          )}
        </dd>
        {found === undefined ? null : (
          <>
            <dt>Reaches</dt>
            <dd>{countOf(found.reaches, "node")}</dd>
            <dt>Reached by</dt>
            <dd>{countOf(found.reachedBy, "node")}</dd>
            <dt>By</dt>
            <dd>
              <a href={pathOf(own, "access")}>{countOf(found.rules, "rule")}</a>
            </dd>
          </>
        )}
      </dl>
    </Panel>
  );
}

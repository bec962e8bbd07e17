// Adds a node in three steps: what it is, the line with the join key to paste on its machine, and its arrival.

import { inWords, parseDuration } from "../../base/quantities.ts";
import { rulesApi } from "../../api/rules.ts";
import { longestLifeOnCommandLine, registrationTokensApi } from "../../api/tokens/registration-tokens.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useMemo, useState } from "preact/hooks";
import { reachOf, rulesOfNode, type RuledNode } from "../access/rules-of-node.ts";
import { call } from "../contact/api.ts";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { mayAddOwn, mayAdminister, me, organization, currentSlug } from "../contact/me.ts";
import { useNodes } from "../nodes/node-list.ts";
import { useList } from "../contact/resource.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import type { Terminal, Words } from "../words/terminal.ts";
import { exact, timeFormat, utc } from "../words/times.ts";
import { Button } from "../ui/button.tsx";
import type { IconName } from "../ui/drawings.ts";
import { Check, FormFailure, Text, useAction } from "../ui/form.tsx";
import { Icon } from "../ui/icon.tsx";
import { Page, Panel, Step } from "../ui/page.tsx";
import { Empty, Line } from "../ui/parts.tsx";
import { Tag } from "../ui/tag.tsx";
import { Arrival, useApproval, type Joined } from "./arrival.tsx";
import type { Token } from "./paste.tsx";
import { GroupsField } from "../pages/groups-field.tsx";
import { plural } from "../words/numbers.ts";

type Kind = "server" | "lighthouse" | "own" | "phone";

const kinds: Readonly<Record<Kind, readonly [icon: IconName, title: string, help: string]>> = {
  server: ["machines", "Server", "A machine or container"],
  lighthouse: ["lighthouse", "Lighthouse", "With a public address"],
  own: ["laptop", "My own", "Confirmed by you, no key"],
  phone: ["phone", "Phone", "A file for the app"],
};

/** What the join key will be for, as it was typed. */
type Draft = { groups: string; uses: string; expires_in: string; name: string; isApproved: boolean };

function bodyOf({ groups, uses, expires_in, name, isApproved }: Draft, kind: Kind) {
  return {
    ...(name.trim() === "" ? {} : { name: name.trim() }),
    uses: Number(uses),
    expires_in,
    groups: partsOf(groups),
    is_lighthouse: kind === "lighthouse",
    ...(isApproved ? { approved: true } : {}),
  };
}

/** The command that makes the same key. */
function wordsOf(
  slug: string,
  { name, uses, expires_in, groups, is_lighthouse, approved }: ReturnType<typeof bodyOf>,
): Words {
  return [
    "token",
    "create",
    slug,
    ...(name === undefined ? [] : ["--name", name]),
    ...groups.flatMap((group) => ["--group", group]),
    ...(uses === 1 ? [] : ["--uses", uses]),
    "--expires",
    expires_in,
    ...(is_lighthouse ? ["--lighthouse"] : []),
    ...(approved === true ? ["--approved"] : []),
  ];
}

export function AddNode() {
  const slug = currentSlug.value ?? "";
  const [draft, setDraft] = useState<Draft>({
    groups: "",
    uses: "1",
    expires_in: longestLifeOnCommandLine,
    name: "",
    isApproved: false,
  });
  const [token, setToken] = useState<Token>();
  const [joined, setJoined] = useState<Joined>();
  const startAgain = () => {
    setToken(undefined);
    setJoined(undefined);
  };
  const offered: Kind[] = [
    ...(mayAdminister.value ? (["server", "lighthouse"] as const) : []),
    ...(mayAddOwn.value ? (["own", "phone"] as const) : []),
  ];
  const kind = offered.find((each) => each === query.value.get("kind")) ?? offered[0];
  const above = <a href={pathOf(slug, "nodes")}>Nodes</a>;
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
        command: wordsOf(slug, body),
        call: ["POST", apiPath(registrationTokensApi.create, { slug }), body],
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
              <Made token={token} again={startAgain} />
            </Step>
          )}
          {isOwn ? <OwnStep kind={kind} /> : null}
          {!isOwn && token === undefined ? <LaterSteps /> : null}
          {isOwn || token === undefined ? null : (
            <Arrival {...{ token, joined, setJoined }} again={startAgain} />
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

const OwnStep = ({ kind }: { kind: "own" | "phone" }) => (
  <Step at={2} title={kind === "own" ? "Type a line on it" : "Make its file"} state="here">
    {kind === "own" ? <OwnLine /> : <PhoneLink />}
  </Step>
);

const LaterSteps = () => (
  <>
    <Step at={2} title="Paste a line on it" state="later">
      <p class="faint">Linux, macOS, Windows; or a QR code.</p>
    </Step>
    <Step at={3} title="See it arrive" state="later">
      <p class="faint">Here, as it happens.</p>
    </Step>
  </>
);

/** Without a key: the user confirms the machine on the page `join`. */
const OwnLine = () => (
  <>
    <p class="quiet">
      It needs no key: type this there, open the address that it shows, and sign in. The node will be yours.
    </p>
    <div class="mt8">
      <Line text={`sudo agent up ${location.origin} --org ${currentSlug.value ?? ""}`} />
    </div>
  </>
);

const PhoneLink = () => (
  <p class="group mt8">
    <Button kind="primary" href={pathOf(currentSlug.value ?? "", "phones")}>
      Add a phone
    </Button>
  </p>
);

/** A typed duration in words, or as it was typed. */
function lifeWords(typed: string): string {
  const seconds = parseDuration(typed);
  if (seconds === undefined) return typed;
  return seconds === 3600 ? "1 hour" : inWords(seconds * 1000);
}

type ChoicesProps = {
  draft: Draft;
  setDraft(draft: Draft): void;
  kind: Kind;
  made(token: Token): void;
};

/** Fields that most users leave as they are, under their names in the API. A sentence says their values, and its words open them. */
const rare = ["uses", "expires_in", "name"] as const;

function Choices({ draft, setDraft, kind, made }: ChoicesProps) {
  const slug = currentSlug.value ?? "";
  const approval = useApproval(slug);
  const [isOpen, setOpen] = useState<Partial<Record<(typeof rare)[number] | "approved", boolean>>>({});
  const body = bodyOf(draft, kind);
  const { error, isRunning, submit } = useAction(async () => {
    made(await call(registrationTokensApi.create, { slug }, body));
  });
  /** A word of the sentence, which opens or closes a field. */
  const word = (field: keyof typeof isOpen, words: string) => (
    <button
      type="button"
      class="plain as-link"
      aria-expanded={isOpen[field] === true}
      onClick={() => setOpen({ ...isOpen, [field]: isOpen[field] !== true })}
    >
      {words}
    </button>
  );
  /** A field, if it is open, or if its value was refused. */
  const field = (
    name: (typeof rare)[number],
    label: string,
    control: Readonly<Record<string, unknown>>,
    help?: string,
  ) =>
    isOpen[name] === true || error?.fields[name] !== undefined ? (
      <Text
        label={label}
        help={help}
        errors={error?.fields[name]}
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
        For {word("uses", plural(Number(draft.uses), "node"))}, the key ends in{" "}
        {word("expires_in", lifeWords(draft.expires_in))}
        {approval === "unapproved" ? (
          <>
            , and {word("approved", draft.isApproved ? "nobody approves" : "an administrator approves")} each
          </>
        ) : approval === "all" ? (
          ", and an administrator approves each"
        ) : null}
        . It has{" "}
        {draft.name.trim() === "" ? word("name", "no name") : <>the name {word("name", draft.name)}</>}.
      </p>
      <div class="mt8">
        {field("uses", "How many nodes", {
          type: "number",
          min: 1,
          max: 1_000_000,
          required: true,
        })}
        {field("expires_in", "The join key is valid for", { required: true }, "Such as 1h, 48h or 7d.")}
        {isOpen.approved === true ? (
          <Check
            label="They need no approval: whoever has the join key can join at once"
            checked={draft.isApproved}
            set={(isApproved) => setDraft({ ...draft, isApproved })}
          />
        ) : null}
        {field("name", "Name of the join key", { maxlength: 100 }, "Optional.")}
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

/** The first step, once it is done: roles and groups that the key gives, and when it ends. */
function Made({ token, again }: { token: Token; again(): void }) {
  const { uses, groups, is_lighthouse, expires_at } = token;
  const end = Date.parse(expires_at);
  return (
    <p class="quiet">
      {plural(uses, "node")}
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

type GetsProps = { groups: readonly string[]; ownerId: number | null; address: string | undefined };

/** What a node of these groups will reach by the present rules; what it reaches, once it has joined and its `address` is known. */
function Gets({ groups, ownerId, address }: GetsProps) {
  const slug = currentSlug.value ?? "";
  const { data: rules } = useList(apiPath(rulesApi.list, { slug }, { page_size: "1000" }));
  const { data: nodes, isWhole } = useNodes();
  const key = groups.join();
  const found = useMemo(() => {
    if (rules === undefined || nodes === undefined || !isWhole) return undefined;
    const asRuledNode = ({
      id,
      groups: all,
      subnets,
      ownerId: owner_id,
    }: (typeof nodes)[number]): RuledNode => ({
      id,
      groups: all,
      owner_groups: [],
      subnets,
      owner_id,
    });
    const newcomer: RuledNode = {
      id: 0,
      groups: [...groups],
      owner_groups: [],
      subnets: [],
      owner_id: ownerId,
    };
    const others = nodes.filter(({ ip_address, state }) => ip_address !== address && state === "active");
    const { inbound, toPeers, outbound } = rulesOfNode(rules, newcomer);
    return {
      ...reachOf(rules, newcomer, others.map(asRuledNode)),
      rules: new Set([...inbound, ...toPeers, ...outbound]).size,
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
            <dd>{plural(found.reaches, "node")}</dd>
            <dt>Reached by</dt>
            <dd>{plural(found.reachedBy, "node")}</dd>
            <dt>By</dt>
            <dd>
              <a href={pathOf(slug, "access")}>{plural(found.rules, "rule")}</a>
            </dd>
          </>
        )}
      </dl>
    </Panel>
  );
}

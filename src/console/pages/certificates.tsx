// The certificate authorities of the organization, and their rotation.

import { useEffect, useState } from "preact/hooks";
import { authoritiesApi, type Authorities } from "../../api/certificates/authorities.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import { nodeLifetimeMs } from "../../api/values.ts";
import type { Attention } from "../../api/paths/attention.ts";
import { actorOf } from "../activity/actor.ts";
import { call } from "../contact/api.ts";
import {
  caWord,
  endsByWeek,
  lastSteering,
  progressOf,
  renewalShare,
  rollbackWarning,
  rotationBegins,
  spansOf,
  stepOf,
  trustOf,
  type Authority,
} from "../needs/authorities.ts";
import { DuePhones } from "../joining/due-phones.tsx";
import { readEvents } from "../activity/log.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { useNodes } from "../nodes/node-list.ts";
import { stateOf, type StateName } from "../nodes/states.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { now, timeFormat } from "../words/times.ts";
import { Button } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Histogram, TimeLine } from "../ui/figures.tsx";
import { Check } from "../ui/form.tsx";
import { Icon } from "../ui/icon.tsx";
import { AwaitedNodes } from "../nodes/awaited-nodes.tsx";
import { Page, Panel } from "../ui/page.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { Copy, Facts, FromTerminal, Line, Loading, moment, State, When } from "../ui/parts.tsx";
import { Pill } from "../ui/tag.tsx";
import { useAttention } from "../needs/use-needs.ts";
import { numberText } from "../words/numbers.ts";

const pathOfCas = (slug: string) => apiPath(authoritiesApi.retrieve, { slug });

type Action = "start" | "pause" | "resume" | "rollback" | "hurry";
/** `isNow`: a key may be known to others. */
type Asked = { action: Action; isNow?: boolean };

const states: Readonly<Record<Authority["state"], StateName>> = {
  next: "limited",
  active: "online",
  former: "away",
};
/** Nodes confirm without an event. */
const rotationReadMs = 5000;

export function Certificates() {
  const slug = currentSlug.value ?? "";
  const { data, error } = useResource(pathOfCas(slug));
  const attention = useAttention(slug);
  const [asked, setAsked] = useState<Asked>();
  const isRotating = data !== undefined && data.rotation.phase !== "none";
  useEffect(() => {
    if (!isRotating) return undefined;
    const timer = setInterval(() => document.hidden || void refresh(pathOfCas(slug)), rotationReadMs);
    return () => clearInterval(timer);
  }, [slug, isRotating]);
  // Reserve the space of the lists: the buttons beside them must not move under the pointer.
  const isRead = data !== undefined && (attention.data ?? attention.error) !== undefined;
  return (
    <Page
      title="Certificates"
      pill={attention.data === undefined ? null : <Renewing {...attention.data} />}
      terminal={{ command: ["ca", "show", slug], call: ["GET", pathOfCas(slug)] }}
      actions={
        isRead && mayAdminister.value && !isRotating ? (
          <Button onClick={() => setAsked({ action: "start" })}>
            Rotate<span class="unseen"> the CAs</span>
          </Button>
        ) : null
      }
    >
      {isRead ? (
        <>
          <CaPanel data={data} />
          <div class="two">
            <div class="stackd">
              <NodeCertificates slug={slug} data={attention.data} />
            </div>
            <div class="stackd">
              <RotationPanel slug={slug} data={data} ask={setAsked} />
              <Panel title="Blocklist" hasRoom={true}>
                <Facts
                  facts={[
                    [
                      "Blocked",
                      `${data.blocklist.entries} of at most ${numberText(data.blocklist.limit)} certificates`,
                    ],
                  ]}
                />
              </Panel>
              {mayAdminister.value ? <KnownKey isRotating={isRotating} ask={setAsked} /> : null}
            </div>
          </div>
        </>
      ) : (
        <Loading rows={16} error={error} />
      )}
      {asked === undefined ? null : <RotationDialog {...asked} close={() => setAsked(undefined)} />}
    </Page>
  );
}

function Renewing({ not_renewed: { count } }: Attention) {
  return (
    <span class="no-phone">
      {count === 0 ? (
        <Pill sign="on" kind="good">
          all renew by themselves
        </Pill>
      ) : (
        <Pill sign="need" kind="bad">
          {count} not renewed in time
        </Pill>
      )}
    </span>
  );
}

const kinds = [
  ["overlay", "Overlay", "the overlay"],
  ["x509", "X.509", "names and services (X.509)"],
] as const;
const yearMs = 365 * 86_400_000;

/** Who signs, and until when: as bars, and as the facts of each. */
function CaPanel({ data }: { data: Authorities }) {
  const { cas } = data;
  const at = now.value;
  const rows = kinds.map(([kind, title]) => ({
    title,
    spans: spansOf(kind, data, at).map((span) =>
      span.kind === "planned" ? { ...span, words: `next, by itself from ${monthOf(span.from)}` } : span,
    ),
  }));
  const spans = rows.flatMap((row) => row.spans);
  const from = Math.max(Math.min(at, ...spans.map((span) => span.from)), at - yearMs);
  const to = Math.max(
    at,
    ...spans.map((span) => (span.kind === "planned" ? span.from + yearMs / 2 : span.to)),
  );
  return (
    <Panel title="Authorities">
      <div class="in">
        <TimeLine label="The CAs over time; the table below has the same" {...{ rows, from, to, now: at }} />
      </div>
      <CaTable cas={cas} rotation={data.rotation} />
    </Panel>
  );
}

function CaTable({ cas, rotation }: Pick<Authorities, "cas" | "rotation">) {
  return (
    <div class="sideways" tabindex={0} role="region" aria-label="Table of the CAs">
      <table class="t">
        <thead>
          <tr>
            <th>State</th>
            <th>For</th>
            <th>Fingerprint</th>
            <th>Nodes trust it</th>
            <th class="num">Valid from</th>
            <th class="num">Ends</th>
          </tr>
        </thead>
        <tbody>
          {cas.map((ca) => (
            <tr key={ca.fingerprint}>
              <td>
                <State name={states[ca.state]} word={caWord(ca, cas)} />
              </td>
              <td>{kinds.find(([kind]) => kind === ca.kind)?.[2]}</td>
              <td>
                <code title={ca.fingerprint}>{ca.fingerprint.slice(0, 16)}…</code>
                <Copy text={ca.fingerprint} label="Copy the fingerprint" />
              </td>
              <td>{trustOf(ca, rotation)}</td>
              <td class="num">
                <When at={ca.not_before} />
              </td>
              <td class="num">
                <When at={ca.not_after} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const monthOf = (at: number) => timeFormat({ month: "long", year: "numeric" }).format(at);

/** Nodes renew by themselves, so only when many end, and the first to end, are of interest. */
function NodeCertificates({ slug, data }: { slug: string; data: Attention | undefined }) {
  const { data: nodes = [] } = useNodes();
  // Those of ephemeral nodes always end within the hour.
  const ends = nodes.flatMap(({ state, endsAt, isEphemeral }) =>
    state !== "active" || endsAt === null || isEphemeral ? [] : [endsAt],
  );
  const [renewing, setRenewing] = useState<ListedNode>();
  const Renew = usePart(renewing === undefined ? undefined : parts.editing)?.dialogs.renew;
  const { counts, ended } = endsByWeek(ends, now.value);
  if (data === undefined) return null;
  const { ending_first: ending, phones_due } = data;
  const soon = counts.slice(0, 4).reduce((sum, count) => sum + count, 0);
  return (
    <>
      {ending.length === 0 ? null : (
        <Panel
          title="Certificates of nodes end"
          beside={<span class="quiet no-phone">{ends.length}, by week</span>}
          actions={
            <a href={`${pathOf(slug, "nodes")}?columns=state,groups,ends,seen&order=ends`}>
              All in this order
            </a>
          }
        >
          <div class="in">
            <Histogram
              label={`Certificates by the week in which they end: ${soon} within four weeks, ${ends.length - ended - soon} later`}
              counts={counts}
              ticks={{ 0: "now", 4: "in 4", 8: "in 8", 12: "12 w" }}
              mark={{ at: renewalShare, words: "renewed before here" }}
            />
            <p class="help">
              A certificate lives {nodeLifetimeMs / 86_400_000} days. Its node renews it by itself when a
              third of that is left; one that is away does so when it is back.
              {ended === 0 ? "" : ` ${ended} ended while their nodes were away.`} These end first:
            </p>
          </div>
          <EndingTable slug={slug} ending={ending} nodes={nodes} renew={setRenewing} />
        </Panel>
      )}
      <DuePhones slug={slug} due={phones_due} />
      {renewing === undefined || Renew === undefined ? null : (
        <Renew nodes={[renewing]} close={() => setRenewing(undefined)} />
      )}
    </>
  );
}

type EndingTableProps = {
  slug: string;
  ending: Attention["ending_first"];
  nodes: readonly ListedNode[];
  renew(node: ListedNode): void;
};

function EndingTable({ slug, ending, nodes, renew }: EndingTableProps) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  return (
    <div class="sideways" tabindex={0} role="region" aria-label="Certificates that end first">
      <table class="t">
        <thead>
          <tr>
            <th>Ends first</th>
            <th>State</th>
            <th class="num">Ends</th>
            <th class="num">Renews</th>
            {mayAdminister.value ? (
              <th class="act num">
                <span class="unseen">Renew now</span>
              </th>
            ) : null}
          </tr>
        </thead>
        <tbody>
          {ending.map(({ id, name, not_after }) => {
            const node = byId.get(id);
            const [state, word] = node === undefined ? (["away", "–"] as const) : stateOf(node);
            return (
              <tr key={id}>
                <td>
                  <a class="name" href={pathOf(slug, "nodes", id)}>
                    <bdi>{name}</bdi>
                  </a>
                </td>
                <td>
                  <State name={state} word={word.replace(/^certificate /, "")} />
                </td>
                <td class="num">
                  <When at={not_after} />
                </td>
                <td class="num quiet">{node === undefined ? "" : renewal(node)}</td>
                {mayAdminister.value ? (
                  <td class="act num">
                    {node === undefined ? null : (
                      <Button kind="ghost" isSmall={true} onClick={() => renew(node)}>
                        Renew<span class="unseen"> {name}</span>
                      </Button>
                    )}
                  </td>
                ) : null}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function renewal({ phone, online, renewsAt }: ListedNode) {
  if (phone !== null) return "by its user";
  if (!online) return "once back";
  return (renewsAt ?? 0) < now.value ? "soon" : moment(renewsAt);
}

type RotationProps = { slug: string; data: Authorities; ask(asked: Asked): void };

const steps = ["All learn the next CA", "It signs, node by node", "The former is trusted no more"];

/** Its three steps are also its progress. */
function RotationPanel({ slug, data: { cas, rotation }, ask }: RotationProps) {
  const { phase, paused, waiting_for: waiting, next_step_at, auto, rolling_back } = rotation;
  const awaited = waiting.length === 1 ? "one node" : `${waiting.length} nodes`;
  return (
    <Panel title="Rotation" hasRoom={true}>
      <div role="status">
        <p>
          {stepOf(rotation)} {paused ? <strong>It is paused.</strong> : null}
        </p>
        <ol class="steps thin mt12">
          {progressOf(rotation).map((state, at) => (
            <li key={at} class={state} aria-current={state === "here" ? "step" : undefined}>
              <span class="n">{state === "done" ? <Icon name="check" /> : at + 1}</span>
              <h2>{steps[at]}</h2>
            </li>
          ))}
        </ol>
        {waiting.length === 0 ? null : (
          <p class="quiet">{`It waits for ${awaited} to confirm. One that goes away is not waited for: it catches up when it is back, or can be revoked.`}</p>
        )}
        {rotation.awaits_signers ? <p>It waits for signers.</p> : null}
        {next_step_at === null ? null : (
          <p>
            The next step follows <When at={next_step_at} />.
          </p>
        )}
        {phase === "none" ? (
          <p class="quiet">
            {auto
              ? "The control plane starts one by itself before the CAs end. Tunnels stay up."
              : "It is started by hand only; Settings can change that. Tunnels stay up."}
          </p>
        ) : (
          <Started key={`${rolling_back}`} slug={slug} cas={cas} />
        )}
      </div>
      {phase === "none" || !mayAdminister.value ? null : (
        <div class="group mt8">
          <Button isSmall={true} onClick={() => ask({ action: paused ? "resume" : "pause" })}>
            {paused ? "Resume" : "Pause"}
          </Button>
          {rolling_back ? null : (
            <>
              <Button isSmall={true} onClick={() => ask({ action: "hurry" })}>
                Do not wait for tunnels
              </Button>
              <Button isSmall={true} onClick={() => ask({ action: "rollback" })}>
                Roll back
              </Button>
            </>
          )}
        </div>
      )}
      <AwaitedNodes slug={slug} ids={waiting} title={`Nodes that it waits for: ${waiting.length}`} />
    </Panel>
  );
}

/** The user who started the rotation, or rolled it back. */
function Started({ slug, cas }: { slug: string; cas: readonly Authority[] }) {
  const names = useMemberNames(slug);
  const [event, setEvent] = useState<AuditEvent>();
  useEffect(() => {
    const start = rotationBegins(cas);
    // Optional: without it, the page shows less.
    readEvents(slug, { start, end: undefined }, () => undefined).then(
      ({ events }) => setEvent(lastSteering(events)),
      () => undefined,
    );
  }, []);
  if (event === undefined) return null;
  return (
    <p>
      {event.after?.["action"] === "start" ? "Started" : "Rolled back"} <When at={event.at} /> by{" "}
      <bdi>{actorOf(event, names)}</bdi>
      {event.after?.["now"] === "true" ? ": a key may be known to others" : null}.
    </p>
  );
}

type KnownKeyProps = { isRotating: boolean; ask(asked: Asked): void };

function KnownKey({ isRotating, ask }: KnownKeyProps) {
  return (
    <Panel title="Is a key of a CA known to others?" hasRoom={true}>
      <p class="quiet">
        Then rotate at once, and do not roll it back: that returns to the known key. Nodes trust certificates
        made with it until they have confirmed the last step.
      </p>
      <p class="group mt8">
        <Button
          kind="danger"
          isSmall={true}
          onClick={() => ask(isRotating ? { action: "hurry" } : { action: "start", isNow: true })}
        >
          Replace the CAs now
        </Button>
      </p>
    </Panel>
  );
}

const tornWords = "Tunnels that still use a former CA are torn down, and can lose packets for some seconds.";
const questions: Readonly<
  Record<Action, { title: string; action: string; effect: string; flags: readonly string[] }>
> = {
  start: {
    title: "Rotate the CAs?",
    action: "Start the rotation",
    effect:
      "All nodes get the new CAs beside the present ones, then certificates of the new CAs, then they forget the present ones. Each step waits for all nodes that are online; one that is away catches up when it is back. All tunnels stay up. You can pause it, or roll it back.",
    flags: [],
  },
  pause: {
    title: "Pause the rotation?",
    action: "Pause",
    effect: "It stays in this step until you resume it. All tunnels stay up.",
    flags: ["--pause"],
  },
  resume: {
    title: "Resume the rotation?",
    action: "Resume",
    effect: "It goes on with its next step.",
    flags: ["--resume"],
  },
  rollback: {
    title: "Roll the rotation back?",
    action: "Roll back",
    effect: "The nodes return to the CAs from before the rotation, step by step. All tunnels stay up.",
    flags: ["--rollback"],
  },
  hurry: {
    title: "Go on without waiting for tunnels?",
    action: "Do not wait for tunnels",
    effect: `Nodes end their trust in the former CAs at once. Choose it when a key may be known to others. ${tornWords}`,
    flags: ["--now"],
  },
};

/** Asks before a step of a rotation is started, paused or undone. */
function RotationDialog({ action, isNow: isAskedNow = false, close }: Asked & { close(): void }) {
  const slug = currentSlug.value ?? "";
  const [isNow, setNow] = useState(isAskedNow);
  const question = questions[action];
  const body =
    action === "hurry"
      ? ({ action: "start", now: true } as const)
      : { action, ...(isNow ? { now: true } : {}) };
  return (
    <Confirm
      title={question.title}
      action={question.action}
      isDanger={false}
      effect={
        <>
          <p>{question.effect}</p>
          {action === "rollback" ? (
            <>
              <p class="notice">{rollbackWarning}</p>
              <Line text={`agent admin ca rotate ${slug} --now`} />
            </>
          ) : null}
          {action === "start" ? (
            <Check
              label={`A key of the present CAs may be known to others: do not wait for tunnels. ${tornWords}`}
              checked={isNow}
              set={setNow}
            />
          ) : null}
          <FromTerminal
            command={["ca", "rotate", slug, ...question.flags, ...(isNow ? ["--now"] : [])]}
            call={["POST", apiPath(authoritiesApi.rotate, { slug }), body]}
          />
        </>
      }
      run={async () => {
        await call(authoritiesApi.rotate, { slug }, body);
        await refresh(pathOfCas(slug));
      }}
      close={close}
    />
  );
}

// The certificate authorities of the organization, and which certificates of nodes end.

import { useEffect, useState } from "preact/hooks";
import type { Authorities } from "../../api/certificates/authorities.ts";
import { nodeLifetimeMs } from "../../api/values.ts";
import type { Attention } from "../../api/paths/attention.ts";
import { caWord, spansOf, trustOf, type Authority } from "./authorities.ts";
import { endsByWeek, renewalShare } from "./ends-by-week.ts";
import { DuePhones } from "../joining/due-phones.tsx";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useNodes } from "../nodes/node-list.ts";
import { mayRenew, stateOf, type StateName } from "../nodes/states.ts";
import { useCut } from "../needs/use-needs.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { now, timeFormat } from "../words/times.ts";
import { Button } from "../ui/button.tsx";
import { Histogram } from "../ui/figures/bars.tsx";
import { TimeLine } from "../ui/figures/time-line.tsx";
import { Page, Panel } from "../ui/page.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { Copy, Facts, Loading, moment, State, When } from "../ui/parts.tsx";
import { Pill } from "../ui/tag.tsx";
import { useAttention } from "../needs/use-needs.ts";
import { numberText } from "../words/numbers.ts";
import { KnownKey, pathOfCas, RotationDialog, RotationPanel, type Asked } from "./rotation.tsx";

/** By the state of a CA, the state of a node whose sign looks alike. */
const states: Readonly<Record<Authority["state"], StateName>> = {
  next: "limited",
  active: "online",
  former: "away",
};
/** Confirmations of nodes are no events: read the CAs again this often while a rotation runs. */
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
        <Pill sign="warn" kind="warn">
          {count} not renewed in time
        </Pill>
      )}
    </span>
  );
}

/** `use`: what its certificates are for. */
const kinds = [
  { kind: "overlay", title: "Overlay", use: "the overlay" },
  { kind: "x509", title: "X.509", use: "names and services (X.509)" },
] as const;
const yearMs = 365 * 86_400_000;

/** Who signs, and until when: as bars, and as the facts of each. */
function CaPanel({ data }: { data: Authorities }) {
  const { cas } = data;
  const at = now.value;
  const rows = kinds.map(({ kind, title }) => ({
    title,
    spans: spansOf(kind, data, at).map((span) =>
      span.kind === "planned" ? { ...span, words: `next, by itself from ${monthOf(span.from)}` } : span,
    ),
  }));
  const spans = rows.flatMap((row) => row.spans);
  const from = Math.max(Math.min(at, ...spans.map((span) => span.from)), at - yearMs);
  const to = Math.max(
    at,
    // A planned CA has no end yet.
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
              <td>{kinds.find(({ kind }) => kind === ca.kind)?.use}</td>
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
  const cut = useCut(slug);
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
            const [state, word] = node === undefined ? (["away", "–"] as const) : stateOf({ ...node, cut });
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
                    {node === undefined || !mayRenew(node) ? null : (
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

// The first page: whether all is well, what needs somebody, and what changed. In this order it is read.

import { eventsApi } from "../../api/events.ts";
import { apiPath } from "../../api/endpoint.ts";
import { nodesApi } from "../../api/nodes.ts";
import { pathsApi, type GroupPaths } from "../../api/paths/paths.ts";
import type { Attention } from "../../api/paths/attention.ts";
import { useEffect, useMemo, useState } from "preact/hooks";
import { behindAll } from "../../api/values.ts";
import { DuePhones } from "../joining/due-phones.tsx";
import { onSeen } from "../contact/live.ts";
import { fleetOf } from "../map/group-link.ts";
import { peopled } from "../map/groups.ts";
import { isAdmin, mayAdminister, organization, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { needRows, tilesOf, verdictOf, type Act, type Need, type TileText } from "../needs/needs.ts";
import type { Answer } from "../joining/waiting-columns.tsx";
import { OwnNodes } from "../nodes/own-nodes.tsx";
import { countWords } from "../nodes/states.ts";
import { relayText } from "../needs/relayed-traffic.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import { now } from "../words/times.ts";
import { Answers, Button, Segments, Words } from "../ui/button.tsx";
import { RecentEvents } from "../activity/recent-events.tsx";
import { Fleet, perSquare, Share, Spark, Tile } from "../ui/figures.tsx";
import { Icon, Sign } from "../ui/icon.tsx";
import { Network } from "../ui/small-network.tsx";
import { Page, Panel, Step } from "../ui/page.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { Copy, Loading, When } from "../ui/parts.tsx";
import { Count } from "../ui/tag.tsx";
import { attentionPath, serversPath, useNeeds, type Needs } from "../needs/use-needs.ts";

/** Check-ins are no events. Those of this time are read together. */
const settleMs = 3000;
/** More needs are counted, and a link leads to them. */
const maxRows = 40;
const spans = [
  ["1", "24 h"],
  ["7", "7 d"],
  ["30", "30 d"],
] as const;

/** Reads again after nodes were in contact. */
function useContacts(slug: string): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const end = onSeen(() => {
      timer ??= setTimeout(() => {
        timer = undefined;
        void Promise.all([refresh(attentionPath(slug)), refresh(serversPath)]);
      }, settleMs);
    });
    return () => {
      end();
      clearTimeout(timer);
    };
  }, [slug]);
}

export function Overview() {
  const slug = currentSlug.value ?? "";
  const needs = useNeeds();
  useContacts(slug);
  const { data: network } = useResource(apiPath(pathsApi.groups, { slug }), { isCalm: true });
  const days = spans.find(([each]) => each === query.value.get("days"))?.[0] ?? "1";
  const { attention, error } = needs;
  const isEmpty = attention?.nodes === 0;
  const add = mayAdminister.value ? (
    <Button kind={isEmpty ? undefined : "primary"} icon="plus" href={pathOf(slug, "nodes", "add")}>
      <Words first="Add" rest="a node" />
    </Button>
  ) : null;
  const time = isEmpty ? null : (
    <span class="no-phone">
      <Segments
        label="Time"
        value={days}
        choices={spans}
        set={(word) => setQuery({ days: word === "1" ? undefined : word })}
      />
    </span>
  );
  const command = ["org", "show", slug];
  let content = <Loading rows={16} error={error} />;
  if (isEmpty) content = <FirstNodes slug={slug} needs={needs} attention={attention} />;
  else if (attention !== undefined)
    content = <Whole slug={slug} days={days} needs={needs} attention={attention} network={network} />;
  return (
    <Page
      title="Overview"
      actions={
        <>
          {time}
          {add}
        </>
      }
      terminal={{ command, call: ["GET", attentionPath(slug)] }}
    >
      {content}
    </Page>
  );
}

type WholeProps = {
  slug: string;
  days: (typeof spans)[number][0];
  needs: Needs;
  attention: Attention;
  network: GroupPaths | undefined;
};

function Whole({ slug, days, needs, network, ...found }: WholeProps) {
  // One count of nodes on the page.
  const counted = network && { active: network.totals.nodes, online: network.totals.online };
  const attention = { ...found.attention, ...counted };
  const rows = needRows(slug, { ...needs, attention }, now.value, network?.totals);
  const changed = <Changed slug={slug} />;
  const isCalm = rows.length < 4;
  return (
    <>
      <State attention={attention} network={network} count={needs.count} slug={slug} />
      <Tiles slug={slug} days={days} attention={attention} network={network} />
      <div class="two">
        <div class="stackd">
          <NeedsYou slug={slug} rows={rows} count={needs.count} isUrgent={needs.isUrgent} />
          <OwnNodes slug={slug} />
          <DuePhones slug={slug} due={attention.phones_due} />
          {isCalm ? changed : null}
        </div>
        <div class="stackd">
          {network === undefined || network.groups.length < 2 ? null : (
            <Panel title="Network" actions={<a href={pathOf(slug, "map")}>Map</a>} hasRoom={true}>
              <Network groups={network.groups} pairs={network.pairs} />
            </Panel>
          )}
          <Relays slug={slug} relays={needs.relays} />
          {isCalm ? null : changed}
        </div>
      </div>
    </>
  );
}

type StateProps = { slug: string; attention: Attention; network: GroupPaths | undefined; count: number };

const legend = [
  ["on", "online"],
  ["part", "relayed"],
  ["off", "away"],
  ["need", "needs you"],
] as const;

/** The verdict over the fleet. */
function State({ slug, attention, network, count }: StateProps) {
  const { sign, words, alarm } = verdictOf(attention, network?.totals, count);
  const groups = fleetOf(slug, peopled(network?.groups ?? []));
  const left = network?.left_out.groups ?? 0;
  const per = perSquare(groups);
  const besides = countWords(attention.nodes, attention.active);
  return (
    <Panel isAlarm={alarm !== undefined} hasRoom={true}>
      <div class="apart">
        <p class="verdict" role="status">
          <Sign name={sign} />
          <bdi>{words}</bdi>
        </p>
        <div class="legend no-phone">
          {legend.map(([sign, words]) => (
            <span key={sign}>
              <Sign name={sign} />
              {words}
            </span>
          ))}
        </div>
      </div>
      {alarm === undefined ? null : (
        <>
          <p class="quiet mt8">
            <bdi>{alarm.facts}</bdi>
          </p>
          <div class="group mt8">
            <Button kind="primary" href={pathOf(slug, "nodes", alarm.id)}>
              Open <bdi>{alarm.name}</bdi>
            </Button>
            <Copy text="sudo agent doctor" label="sudo agent doctor">
              sudo agent doctor
            </Copy>
            <Button kind="ghost" href={`${pathOf(slug, "nodes")}?show=broken`}>
              What else is hit?
            </Button>
          </div>
        </>
      )}
      {groups.length === 0 ? null : <Fleet groups={groups} />}
      {per === 1 && left === 0 && besides === "" ? null : (
        <p class="help">
          {besides === "" ? "" : `Counted are nodes with an agent. The list has ${besides}. `}
          {per === 1 ? "" : `A square stands for up to ${per} nodes. `}
          {left === 0 ? "" : `${left} more groups, which are better off, are not shown.`}
        </p>
      )}
    </Panel>
  );
}

type TilesProps = Omit<WholeProps, "needs">;

function Tiles({ slug, days, attention, network }: TilesProps) {
  const { data: history } = useResource(apiPath(nodesApi.online, { slug }, { days }), { isCalm: true });
  const [, words = ""] = spans.find(([each]) => each === days) ?? [];
  const { online, paths, trips, current } = tilesOf(attention, history, network, words);
  const tile = (label: string, text: TileText, href: string) => (
    <Tile
      label={label}
      value={text.value}
      of={text.of}
      facts={
        <>
          {text.facts} <span class="is-bad">{text.bad}</span>
        </>
      }
      href={href}
    >
      <Spark values={text.line} isBad={text.bad !== ""} />
    </Tile>
  );
  return (
    <div class="tiles">
      {tile("Online", online, `${pathOf(slug, "nodes")}?show=away`)}
      {paths === undefined ? null : tile("Direct paths", paths, `${pathOf(slug, "map")}?view=table`)}
      {trips === undefined ? null : tile("Median round trip", trips, `${pathOf(slug, "map")}?view=matrix`)}
      {current === undefined ? null : (
        <Tile
          label="Have the newest configuration"
          value={current.value}
          of={current.of}
          facts={current.facts}
          href={`${pathOf(slug, "nodes")}?show=late`}
        >
          <Share share={current.share} />
        </Tile>
      )}
    </div>
  );
}

/** `isEmpty`: there is no node that could be shown. */
type NeedsProps = {
  slug: string;
  rows: readonly Need[];
  count: number;
  isUrgent: boolean;
  isEmpty?: boolean;
};

function NeedsYou({ slug, rows, count, isUrgent, isEmpty = false }: NeedsProps) {
  const all = <a href={`${pathOf(slug, "nodes")}?show=needs`}>Show in nodes</a>;
  const [answer, setAnswer] = useState<Answer>();
  const AnswerDialog = usePart(answer === undefined ? undefined : parts.joining)?.AnswerDialog;
  return (
    <Panel
      title="Needs you"
      beside={count === 0 ? null : <Count count={count} words="need you" isSoft={!isUrgent} />}
      actions={rows.length === 0 || isEmpty ? null : all}
    >
      {answer === undefined || AnswerDialog === undefined ? null : (
        <AnswerDialog {...answer} close={() => setAnswer(undefined)} />
      )}
      <ul class="lines needs">
        {rows.length === 0 ? (
          <li>
            <Sign name="on" />
            <span class="name">Nothing</span>
            <span class="what quiet">What needs your attention will be listed here, with what to do.</span>
          </li>
        ) : (
          rows
            .slice(0, maxRows)
            .map((need) => <Row key={need.key} slug={slug} need={need} give={setAnswer} />)
        )}
        {rows.length > maxRows ? (
          <li>
            <Sign name="warn" />
            <span class="name">{rows.length - maxRows} more</span>
          </li>
        ) : null}
      </ul>
    </Panel>
  );
}

const hrefOf = (slug: string, to: Need["to"]) => (to[0] === "-" ? pathOf(...to) : pathOf(slug, ...to));

type RowProps = { slug: string; need: Need; give(answer: Answer): void };

function Row({ slug, need: { sign, name, to, what, more, at, act }, give }: RowProps) {
  return (
    <li>
      <Sign name={sign} />
      <a class="name cut" href={hrefOf(slug, to)} title={name}>
        <bdi>{name}</bdi>
      </a>
      <span class="what quiet cut" title={more === undefined ? what : `${what}\n${more}`}>
        <bdi>{what}</bdi>
      </span>
      {at == null ? <span /> : <When at={at} />}
      <span class="acts">
        <ActButton slug={slug} act={act} give={give} />
      </span>
    </li>
  );
}

/** What can be done about a need: an answer to a request, a command to copy, or a page to open. */
function ActButton({ slug, act, give }: Pick<RowProps, "slug" | "give"> & { act: Act }) {
  if ("request" in act)
    return <Answers name={act.request.name} give={(verb) => give({ verb, machine: act.request })} />;
  if ("copy" in act)
    return (
      <Copy text={act.copy} label={act.copy}>
        {act.words}
      </Copy>
    );
  const search = act.query === undefined ? "" : `?${act.query}`;
  return (
    <Button isSmall={true} href={hrefOf(slug, act.to) + search}>
      {act.words}
    </Button>
  );
}

/** Relayed traffic, because it costs money: shown from the first report on. */
function Relays({ slug, relays }: { slug: string; relays: Needs["relays"] }) {
  const counted = relays.filter(({ bytes }) => bytes !== null);
  if (counted.length === 0) return null;
  return (
    <Panel title="Relays" actions={<a href={`${pathOf(slug, "nodes")}?show=relay`}>Nodes</a>}>
      <ul class="lines recent">
        {counted
          .toSorted((a, b) => Number(b.paused) - Number(a.paused) || (b.bytes ?? 0) - (a.bytes ?? 0))
          .slice(0, maxRows)
          .map((relay) => (
            <li key={relay.node}>
              <Sign name={relay.paused ? "warn" : "on"} />
              <span class="cut" title={relayText(relay)}>
                <a class="name" href={pathOf(slug, "nodes", relay.node)}>
                  <bdi>{relay.node_name}</bdi>
                </a>{" "}
                <span class="quiet">{relayText(relay)}</span>
              </span>
            </li>
          ))}
      </ul>
    </Panel>
  );
}

const shownEvents = 6;

/** The newest events, as sentences. What the control plane noted for its history says nothing new. */
function Changed({ slug }: { slug: string }) {
  const { data = [] } = useResource(
    apiPath(eventsApi.list, { slug }, { before: `${behindAll}`, limit: `${2 * shownEvents}` }),
  );
  const events = useMemo(() => {
    const told = data.filter(({ type }) => type !== "policy.recorded");
    return told.toReversed().slice(0, shownEvents);
  }, [data]);
  const names = useMemberNames(slug);
  if (events.length === 0) return null;
  return (
    <Panel title="Changed" actions={<a href={pathOf(slug, "activity")}>Activity</a>}>
      <RecentEvents events={events} names={names} />
    </Panel>
  );
}

/** An organization without a node: the three steps to a network, and what can be done meanwhile. */
function FirstNodes({ slug, needs, attention }: Pick<WholeProps, "slug" | "needs" | "attention">) {
  const shown = organization.value;
  const rows = needRows(slug, { ...needs, attention }, now.value);
  const meanwhile = [
    ["people", "Invite somebody", pathOf(slug, "people")],
    ["passkey", "Add a passkey", pathOf("-", "account")],
    ["access", "Look at the rules", pathOf(slug, "access")],
  ] as const;
  return (
    <div class="start">
      <div>
        <div class="hello">
          <h2>Your network has no node yet</h2>
          <p class="quiet mt8">
            You need three nodes: one that the others can reach, and two that talk. It takes about five
            minutes.
          </p>
        </div>
        <ol class="steps mt12">
          <Step at={1} title="A lighthouse: a machine with a public address" state="here">
            <p class="quiet">The others find each other through it. It needs an open UDP port.</p>
            {isAdmin(shown) ? (
              <p class="group mt8">
                <Button kind="primary" icon="plus" href={`${pathOf(slug, "nodes", "add")}?kind=lighthouse`}>
                  Add a lighthouse
                </Button>
              </p>
            ) : null}
          </Step>
          <Step at={2} title="A second node" state="later">
            <p class="quiet">The same way, with a key of its own. No open port is needed.</p>
          </Step>
          <Step at={3} title="Let them talk" state="later">
            <p class="quiet">
              Two rules are there from the start: all may send, all answer pings. You add what else may be
              reached.
            </p>
          </Step>
        </ol>
        {rows.length === 0 ? null : (
          <NeedsYou slug={slug} rows={rows} count={needs.count} isUrgent={needs.isUrgent} isEmpty={true} />
        )}
      </div>
      <aside class="stackd">
        <Panel title="Your network" hasRoom={true}>
          <dl class="facts">
            <dt>Name</dt>
            <dd>
              <bdi>{shown?.name}</bdi>
            </dd>
            <dt>Names end in</dt>
            <dd>.{slug}.internal</dd>
            <dt>Addresses</dt>
            <dd class="mono">{shown?.network}</dd>
          </dl>
        </Panel>
        <Panel title="Meanwhile">
          <ul class="lines recent">
            {meanwhile.map(([icon, words, href]) => (
              <li key={words}>
                <Icon name={icon} />
                <a class="name" href={href}>
                  {words}
                </a>
              </li>
            ))}
          </ul>
        </Panel>
      </aside>
    </div>
  );
}

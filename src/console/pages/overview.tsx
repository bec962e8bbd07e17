// The first page: whether all is well, what needs an administrator, and what changed. In this order it is read.

import { eventsApi } from "../../api/events.ts";
import { apiPath } from "../../api/endpoint.ts";
import { nodesApi } from "../../api/nodes.ts";
import { pathsApi, type GroupPaths } from "../../api/paths/paths.ts";
import type { Attention } from "../../api/paths/attention.ts";
import { useEffect, useMemo } from "preact/hooks";
import { behindAll } from "../../api/values.ts";
import { DuePhones } from "../joining/due-phones.tsx";
import { onSeen } from "../contact/live.ts";
import { fleetOf } from "../map/group-link.ts";
import { peopled } from "../map/groups.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { NeedsYou } from "../needs/needs-panel.tsx";
import { needRows } from "../needs/need-rows.ts";
import { tilesOf, type TileText } from "../needs/tiles.ts";
import { verdictOf } from "../needs/verdict.ts";
import { OwnNodes } from "../nodes/own-nodes.tsx";
import { countWords } from "../nodes/states.ts";
import { relayText } from "../needs/relayed-traffic.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import { now } from "../words/times.ts";
import { Button, Segments, Words } from "../ui/button.tsx";
import { RecentEvents } from "../activity/recent-events.tsx";
import { Fleet, perSquare } from "../ui/figures/fleet.tsx";
import { Share, Spark, Tile } from "../ui/figures/tile.tsx";
import { Sign } from "../ui/icon.tsx";
import { Network } from "../ui/small-network.tsx";
import { Page, Panel } from "../ui/page.tsx";
import { Copy, Loading } from "../ui/parts.tsx";
import { attentionPath } from "../needs/need-kinds.ts";
import { serversPath, useNeeds, type Needs } from "../needs/use-needs.ts";
import { FirstNodes } from "./first-nodes.tsx";

/** Check-ins are no events of the audit log. After one, the page waits for so long, and reads once for all of this time. */
const settleMs = 3000;
const maxRelays = 40;
/** With fewer needs, what changed stands below them; else beside them. */
const manyNeeds = 4;
/** Days of the lines in the tiles, and their words. */
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

function Whole({ slug, days, needs, network, attention: read }: WholeProps) {
  // The page counts nodes in one way only: as the sums of paths do, once they are read.
  const counted = network && { active: network.totals.nodes, online: network.totals.online };
  const attention = { ...read, ...counted };
  const rows = needRows(slug, { ...needs, attention }, now.value, network?.totals);
  const changed = <Changed slug={slug} />;
  const isCalm = rows.length < manyNeeds;
  return (
    <>
      <Verdict attention={attention} network={network} count={needs.count} slug={slug} />
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

type VerdictProps = { slug: string; attention: Attention; network: GroupPaths | undefined; count: number };

const legend = [
  ["on", "online"],
  ["part", "relayed"],
  ["off", "away"],
  ["need", "needs you"],
] as const;

/** The verdict over the fleet. `count`: of all needs. */
function Verdict({ slug, attention, network, count }: VerdictProps) {
  const { sign, words, alarm } = verdictOf(attention, network?.totals, count);
  const groups = fleetOf(slug, peopled(network?.groups ?? []), network?.totals.cut ?? 0);
  const groupsLeftOut = network?.left_out.groups ?? 0;
  const nodesPerSquare = perSquare(groups);
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
      {nodesPerSquare === 1 && groupsLeftOut === 0 && besides === "" ? null : (
        <p class="help">
          {besides === "" ? "" : `Counted are nodes with an agent. The list has ${besides}. `}
          {nodesPerSquare === 1 ? "" : `A square stands for up to ${nodesPerSquare} nodes. `}
          {groupsLeftOut === 0 ? "" : `${groupsLeftOut} more groups, which are better off, are not shown.`}
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

/** Relayed traffic, because it costs money: shown from the first report on. */
function Relays({ slug, relays }: { slug: string; relays: Needs["relays"] }) {
  const counted = relays.filter(({ bytes }) => bytes !== null);
  if (counted.length === 0) return null;
  return (
    <Panel title="Relays" actions={<a href={`${pathOf(slug, "nodes")}?show=relay`}>Nodes</a>}>
      <ul class="lines recent">
        {counted
          .toSorted((a, b) => Number(b.paused) - Number(a.paused) || (b.bytes ?? 0) - (a.bytes ?? 0))
          .slice(0, maxRelays)
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
  // Twice as many as are shown, the oldest first: the notes among them are dropped.
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

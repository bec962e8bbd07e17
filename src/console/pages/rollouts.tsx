// Updates in rings: one of them whole, by default the newest, and the list of all.

import { useEffect, useState } from "preact/hooks";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { rolloutsApi, type rolloutActions } from "../../api/rollouts.ts";
import { hoursText } from "../../protocol/updates/hours.ts";
import { request } from "../contact/api.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import {
  isOpen,
  memberState,
  nodesOf,
  ringWords,
  sizeOf,
  stateOf,
  versionsOf,
  type Shown,
} from "../rollouts/rollout-words.ts";
import { Button, Words } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Share, Tile } from "../ui/figures/tile.tsx";
import { linkColumn, List, stateColumn, textColumn } from "../ui/lists/list.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { Page, Panel, Why } from "../ui/page.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { Empty, Facts, Line, Loading, signOf, When } from "../ui/parts.tsx";
import { Pill, Tag } from "../ui/tag.tsx";
import { plural } from "../words/numbers.ts";

type Action = (typeof rolloutActions)[number];
type Member = SentOf<typeof rolloutsApi.nodes>[number];
/** How many rollouts are listed, the newest: each costs the control plane a query of its own. */
const listed = "20";
/** How many nodes are listed, those that failed first. */
const maxMembers = "200";
/** The progress of nodes is no event: read the rollout and its nodes, whose paths begin like its own, this often while it runs. */
const readEveryMs = 5000;

export function Rollouts({ rest: [asked] }: { rest: readonly string[] }) {
  const slug = currentSlug.value ?? "";
  const path = apiPath(rolloutsApi.list, { slug });
  const { data, error } = useResource(apiPath(rolloutsApi.list, { slug }, { page_size: listed }));
  const id = asked === undefined ? data?.[0]?.id : Number(asked);
  // The empty path sends no request.
  const one = id === undefined ? "" : apiPath(rolloutsApi.retrieve, { slug, id });
  const { data: shown, error: failed } = useResource(one);
  const [action, setAction] = useState<Action>();
  const [isBeginning, setBeginning] = useState(false);
  const Begin = usePart(isBeginning ? parts.editing : undefined)?.Begin;
  const isRunning = shown !== undefined && isOpen(shown);
  useEffect(() => {
    if (!isRunning) return undefined;
    const timer = setInterval(() => document.hidden || void refresh(one), readEveryMs);
    return () => clearInterval(timer);
  }, [one, isRunning]);
  const may = mayAdminister.value;
  const open = data?.find(isOpen);
  return (
    <Page
      title="Rollouts"
      pill={shown === undefined ? null : <StatePill {...shown} />}
      terminal={
        id === undefined
          ? { command: ["rollout", "list", slug], call: ["GET", path] }
          : { command: ["rollout", "show", slug, id], call: ["GET", one] }
      }
      actions={
        may && data !== undefined && open === undefined ? (
          <Button kind="primary" icon="plus" onClick={() => setBeginning(true)}>
            <Words first="Update" rest="nodes" />
          </Button>
        ) : null
      }
    >
      {data === undefined || (id !== undefined && shown === undefined) ? (
        <Loading error={error ?? failed} />
      ) : (
        <div class="stackd">
          {may && open ? (
            <small>
              One rollout at a time:{" "}
              {open.state === "returning"
                ? "the next can begin in about a minute, once the nodes have gone back."
                : "end the open one first."}
            </small>
          ) : null}
          {shown === undefined ? (
            <Nothing slug={slug} may={may} />
          ) : (
            <Whole slug={slug} shown={shown} ask={may ? setAction : undefined} />
          )}
          {data.length > 1 || data[0]?.id !== id ? (
            <All slug={slug} path={path} data={data} error={error} />
          ) : null}
        </div>
      )}
      {!isBeginning || Begin === undefined ? null : <Begin path={path} close={() => setBeginning(false)} />}
      {action === undefined || shown === undefined ? null : (
        <Steer shown={shown} action={action} path={path} close={() => setAction(undefined)} />
      )}
    </Page>
  );
}

function StatePill(shown: Shown) {
  const [name, word] = stateOf(shown);
  return (
    <Pill sign={signOf[name]} kind={name === "attention" ? "bad" : undefined}>
      {word}
    </Pill>
  );
}

const Nothing = ({ slug, may }: { slug: string; may: boolean }) => (
  <Panel hasRoom={true}>
    <Empty text="Nothing was updated in rings yet: first one node, then 5 %, then 25 %, then all.">
      <p>
        On each machine, root permits it once:
        <Line text={`sudo agent sync-config --org-slug ${slug} --allow-updates agent,engine`} />
      </p>
      {may ? null : <p class="quiet">Administrators begin it.</p>}
    </Empty>
  </Panel>
);

type WholeProps = { slug: string; shown: Shown; ask: ((action: Action) => void) | undefined };

function Whole({ slug, shown, ask }: WholeProps) {
  const nodes = useResource(apiPath(rolloutsApi.nodes, { slug, id: shown.id }, { page_size: maxMembers }));
  const { state, ring, rings, groups, hours, watch_s: watch, created_at, ended_at } = shown;
  return (
    <>
      <Reason slug={slug} shown={shown} nodes={nodes.data ?? []} />
      <Panel
        title={versionsOf(shown)}
        beside={<span class="quiet">{nodesOf(shown)} nodes updated</span>}
        actions={
          ask === undefined || !isOpen(shown) || state === "returning" ? null : (
            <>
              <Button isSmall={true} onClick={() => ask(state === "paused" ? "resume" : "pause")}>
                {state === "paused" ? "Resume" : "Pause"}
              </Button>
              <Button isSmall={true} kind="danger" onClick={() => ask("abort")}>
                Abort
              </Button>
            </>
          )
        }
      >
        <div class="tiles" role="status">
          {rings.map((each, at) => (
            <Tile
              key={at}
              label={`Ring ${at + 1}${at + 1 === ring && isOpen(shown) ? ", now" : ""}`}
              value={`${each.passed}`}
              of={`of ${sizeOf(each)}`}
              facts={ringWords(each, at + 1, shown)}
            >
              <Share share={each.passed / Math.max(1, sizeOf(each))} />
            </Tile>
          ))}
        </div>
        <div class="in">
          <Facts
            facts={[
              ...(shown.settings === null
                ? []
                : ([["Settings", <code>{JSON.stringify(shown.settings)}</code>]] as const)),
              ["Started", <When at={created_at} />],
              ...(shown.waits_until === null
                ? []
                : ([["Goes on", <When at={shown.waits_until} />]] as const)),
              ...(ended_at === null ? [] : ([["Ended", <When at={ended_at} />]] as const)),
              [
                "For",
                groups.length === 0
                  ? "all nodes that permit it"
                  : groups.map((name) => <Tag key={name} text={name} />),
              ],
              [
                "Hours",
                hours.length === 0 ? "always" : `${hours.map(hoursText).join(" ")}, each node's own time`,
              ],
              ["A ring is watched for", watch % 60 === 0 ? plural(watch / 60, "minute") : `${watch} s`],
            ]}
          />
        </div>
      </Panel>
      <Members slug={slug} shown={shown} {...nodes} />
    </>
  );
}

/** What becomes of rings that had passed. */
const passedWords = ({ settings }: Shown) =>
  settings === null
    ? "Versions of rings that had passed stay."
    : "Rings that had passed go back to the former settings, too.";

function nextWords(shown: Shown): string {
  if (shown.state === "paused")
    return "Resume says that this ring is well, and the next one begins. Abort takes it back.";
  return shown.state === "returning"
    ? "The nodes of this ring go back to their former versions."
    : `The nodes of this ring went back. ${passedWords(shown)}`;
}

/** Why it stopped or pauses: the node, the probe, and the line of its log. */
function Reason({ slug, shown, nodes }: { slug: string; shown: Shown; nodes: readonly Member[] }) {
  const { reason, failed_node: name, probe, log } = shown;
  if (reason === "") return null;
  const node = nodes.find((each) => each.node_name === name)?.node;
  return (
    <div role="status">
      <Why
        kind={name === null ? "info" : "bad"}
        {...(name === null && { icon: "refresh" as const })}
        title={<bdi>{reason}</bdi>}
      >
        {name === null ? null : (
          <Facts
            facts={[
              ["Node", node === undefined ? name : <a href={pathOf(slug, "nodes", node)}>{name}</a>],
              ...(probe === "" ? [] : ([["Probe", probe]] as const)),
              ...(log === "" ? [] : ([["Log", <code>{log}</code>]] as const)),
            ]}
          />
        )}
        <p>{nextWords(shown)}</p>
      </Why>
    </div>
  );
}

type Read<T> = { data: readonly T[] | undefined; error: Parameters<typeof Loading>[0]["error"] };

const isFailed = ({ state }: Member) => Number(state === "failed");
/** As the API orders them, but for numbers in names: node-2 before node-10. */
const byPlace = (a: Member, b: Member) =>
  isFailed(b) - isFailed(a) ||
  a.ring - b.ring ||
  a.node_name.localeCompare(b.node_name, "en", { numeric: true });

function Members({ slug, shown: { id, rings }, data, error }: Read<Member> & { slug: string; shown: Shown }) {
  const all = rings.reduce((sum, ring) => sum + sizeOf(ring), 0);
  return (
    <List
      label="Nodes of the rollout"
      title={all > Number(maxMembers) ? `${maxMembers} of ${all} nodes, failed ones first` : "Nodes"}
      part="nodes"
      path={apiPath(rolloutsApi.nodes, { slug, id })}
      read={{ data: data?.toSorted(byPlace), error }}
      columns={[
        textColumn("ring", "Ring", 1, ({ ring }: Member) => `${ring}`),
        linkColumn(
          "node",
          "Node",
          2,
          ({ node_name }: Member) => node_name,
          ({ node }: Member) => pathOf(slug, "nodes", node),
        ),
        stateColumn(2, ({ state }: Member) => memberState(state)),
        timeColumn("since", "Since", ({ since }: Member) => since),
        textColumn("reason", "Reason", 4, ({ reason }: Member) => reason),
      ]}
      keyOf={({ node }: Member) => node}
      empty="None."
    />
  );
}

function All({ slug, path, data, error }: Read<Shown> & { slug: string; path: string }) {
  return (
    <List
      label="Rollouts"
      title="All rollouts"
      part="all"
      path={path}
      command={["rollout", "list", slug]}
      read={{ data, error }}
      columns={[
        linkColumn("versions", "Versions", 3, versionsOf, ({ id }: Shown) => pathOf(slug, "rollouts", id)),
        stateColumn(2, (each: Shown) => stateOf(each)),
        textColumn("nodes", "Nodes", 1, nodesOf),
        timeColumn("started", "Started", ({ created_at }: Shown) => created_at),
        textColumn("reason", "Reason", 4, ({ reason }: Shown) => reason),
      ]}
      keyOf={({ id }: Shown) => id}
      empty="None."
    />
  );
}

const effects: Readonly<Record<Action, readonly [verb: string, effect: string]>> = {
  pause: [
    "Pause",
    "No other node is told. Those that have changed stay watched, and may take the ring back.",
  ],
  resume: ["Resume", "It goes on with its next nodes."],
  abort: ["Abort", "The nodes of this ring go back."],
};

type SteerProps = { shown: Shown; action: Action; path: string; close(): void };

function Steer({ shown, action, path, close }: SteerProps) {
  const { id, reason } = shown;
  const slug = currentSlug.value ?? "";
  const [verb, words] = effects[action];
  const effect = action === "abort" ? `${words} ${passedWords(shown)}` : words;
  return (
    <Confirm
      title={`${verb} the rollout?`}
      action={verb}
      effect={
        action === "resume" && reason !== "" ? "You say that this ring is well. The next one begins." : effect
      }
      isDanger={action === "abort"}
      command={["rollout", action, slug, id]}
      sends={request(rolloutsApi.steer, { slug, id }, { action })}
      changes={path}
      close={close}
    />
  );
}

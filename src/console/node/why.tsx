// What is wrong with a node, why, and what to do: the worst of it, on top of its page and of its panel.

import { pathsApi, type Path } from "../../api/paths/paths.ts";
import { rulesApi, type Explained } from "../../api/rules.ts";
import { nodesApi } from "../../api/nodes.ts";
import { alarmsApi } from "../../api/webhooks/alarms.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { findingOf, findingWords, separateCopy } from "../../protocol/finding-kinds.ts";
import type { Node } from "../../protocol/node.ts";
import { ApiError, call } from "../contact/api.ts";
import { me, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { behindWords, isImportDue, isOverdue, updateEngine, vulnerabilitiesOf } from "../nodes/states.ts";
import { useCut } from "../needs/use-needs.ts";
import { useList, useResource } from "../contact/resource.ts";
import { ago } from "../words/ago.ts";
import { capitalized } from "../words/capitalized.ts";
import { exact, now, timeFormat, utc } from "../words/times.ts";
import { Button } from "../ui/button.tsx";
import { Why } from "../ui/page.tsx";
import { CopyCommand, When } from "../ui/parts.tsx";
import { isBroken, whyPath } from "./paths.tsx";
import { Revocation } from "./revocation.tsx";
import { outageStart, whyKind, whyWords } from "./why-words.ts";

/** `isShort`: beside the list. */
type Props = { node: Node; peers: readonly Path[] | undefined; isShort?: boolean };

/** The worst problem of a node, the first that holds; nothing for a node without one. */
export function WhyOf({ node, peers, isShort = false }: Props): VNode | null {
  if (node.state === "revoked") return <Revoked node={node} />;
  if (node.state !== "active") return null;
  if (node.phone != null) return isImportDue(node.phone) ? <ImportAgain node={node} /> : null;
  if (!node.online) return <HubAway node={node} />;
  const kind = findingOf(node.finding);
  const broken = (peers ?? []).filter(isBroken);
  if (kind === "cloned")
    return (
      <Problem
        node={node}
        title="Two machines use its keys"
        lines={[separateCopy]}
        text="Tunnels alternate between them. On the copy alone, with a new join key, this makes it a node of its own:"
      />
    );
  if (kind !== undefined)
    return (
      <Problem
        node={node}
        // As the beginning of a title. Most of the words begin with "its" or "it".
        title={capitalized(findingWords[kind])}
        text="So it reported at its last check-in. On the machine, this says what to do:"
        lines={["sudo agent doctor"]}
      />
    );
  const [first] = broken;
  if (first !== undefined) return <Broken node={node} peer={first} others={broken.length - 1} />;
  if (node.not_applied_since != null) {
    // `isSent`: the node has fetched the newer configuration.
    const { words } = behindWords(node, { isSent: true, now: now.value });
    return (
      <Problem
        node={node}
        title="It has not applied the newest configuration"
        text={`${words} On the machine, this applies it, or says why not:`}
        lines={["sudo agent sync-config"]}
        actions={
          isShort ? null : (
            <Button isSmall={true} href="#configuration">
              What it lacks
            </Button>
          )
        }
      />
    );
  }
  if (isOverdue(node))
    return (
      <Problem
        node={node}
        title="Its certificate should have been renewed"
        text="A node renews when it checks in. On the machine, this asks at once:"
        lines={["sudo agent checkin"]}
      />
    );
  const holes = vulnerabilitiesOf(node);
  return holes === "" ? null : (
    <Problem
      node={node}
      title="Its engine has known vulnerabilities"
      text={`${holes}. On the machine, this updates it:`}
      lines={[updateEngine]}
    />
  );
}

/** `lines`: commands to copy. */
type ProblemProps = {
  node: Node;
  title: string;
  text: string;
  lines: readonly string[];
  actions?: ComponentChildren;
};

const Problem = ({ node, title, text, lines, actions }: ProblemProps) => (
  <Why
    kind={whyKind(node)}
    title={<bdi>{title}</bdi>}
    actions={
      <>
        {lines.map((line) => (
          <CopyCommand key={line} command={line} />
        ))}
        {actions}
      </>
    }
  >
    <p>
      <bdi>{text}</bdi>
    </p>
  </Why>
);

const dayMs = 86_400_000;

/** "22:01 (6m ago)", with the day if that was 24 hours ago or more. */
function Since({ at }: { at: string }) {
  const ms = Date.parse(at);
  const isRecent = now.value - ms < dayMs;
  const format = timeFormat(isRecent ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
  return (
    <time datetime={utc(ms)} title={exact(ms)}>
      {format.format(ms)} ({ago(ms, now.value)})
    </time>
  );
}

/** A peer that does not answer: what the rules say, and whether both ends are online and have applied them. */
function Broken({ node, peer, others }: { node: Node; peer: Path; others: number }) {
  const slug = currentSlug.value ?? "";
  const id = peer.peer;
  const { data: other } = useResource(id === null ? "" : apiPath(nodesApi.retrieve, { slug, id }));
  const permitted = usePermitted(slug, node.id, id);
  const { data: alarms = [] } = useResource(apiPath(alarmsApi.list, { slug }));
  const name = peer.peer_name ?? peer.peer_address;
  const since = outageStart(alarms, [node.name, name]);
  const { words, command } =
    id === null
      ? { words: `No node has the address ${peer.peer_address}.` }
      : whyWords(node, other, permitted);
  return (
    <Why
      title={
        <>
          Does not reach <bdi>{name}</bdi>
          {others === 0 ? "" : ` and ${others} more`}
          {since === undefined ? null : (
            <>
              {" "}
              since <Since at={since} />
            </>
          )}
        </>
      }
      actions={
        <>
          {id === null ? null : (
            <Button kind="primary" isSmall={true} href={whyPath(node, peer)}>
              Examine the path
            </Button>
          )}
          {command === undefined ? null : <CopyCommand command={command} />}
        </>
      }
    >
      <p>
        <bdi>{words}</bdi>
      </p>
    </Why>
  );
}

/** What the rules permit from one node to another, by their ids; undefined until it is known, and for `to` null. */
function usePermitted(slug: string, from: number, to: number | null): Explained["permitted"] | undefined {
  const [found, setFound] = useState<{ key: string; permitted: Explained["permitted"] }>();
  const key = `${slug} ${from} ${to}`;
  // Other rules may answer differently.
  const { data: rules } = useList(apiPath(rulesApi.list, { slug }, { page_size: "1000" }));
  useEffect(() => {
    if (to === null) return undefined;
    let isOver = false;
    // The answer's `permitted` does not depend on the protocol, which the request needs.
    call(rulesApi.test, { slug }, { from, to, protocol: "tcp" }).then(
      ({ permitted }) => isOver || setFound({ key, permitted }),
      (error: unknown) => {
        // Shown without: the title says that the path is broken.
        if (!(error instanceof ApiError)) throw error;
      },
    );
    return () => void (isOver = true);
  }, [key, rules]);
  return found?.key === key ? found.permitted : undefined;
}

/** Nodes that others need: of one without such a role, it is no problem that it is away. */
function HubAway({ node }: { node: Node }) {
  // How many paths have no other way than a relay that is away: it decides how grave its absence is.
  const cut = useCut(currentSlug.value ?? "");
  if (!node.is_lighthouse && !node.is_relay) return null;
  const what = node.is_lighthouse ? "Nodes find each other by this lighthouse." : "It relays for others.";
  return (
    <Why
      kind={whyKind(node, { cut })}
      title={
        <>
          {node.is_lighthouse ? "This lighthouse" : "This relay"} is away
          {node.last_checkin_at === null ? null : (
            <>
              {" "}
              since <Since at={node.last_checkin_at} />
            </>
          )}
        </>
      }
      actions={<CopyCommand command="sudo agent doctor" />}
    >
      <p>{what} If its machine runs, this says there what is wrong:</p>
    </Why>
  );
}

function ImportAgain({ node }: { node: Node }) {
  const isOwn = node.owner_id === me.value?.id;
  return (
    <Why kind="info" title="It has to be imported again">
      <p>
        {isOwn ? "" : "Its user does it: "}
        The certificate or a CA ends soon, or its groups or CAs have changed since.
      </p>
    </Why>
  );
}

/** Since when, by which user and why the node is revoked; and which nodes have confirmed that they refuse it. */
function Revoked({ node }: { node: Node }) {
  const { revoked_at: at, revoked_by: by = "", revoke_reason: reason } = node;
  const slug = currentSlug.value ?? "";
  const names = useMemberNames(slug);
  const user = by.startsWith("person/") ? names.get(Number(by.slice("person/".length))) : undefined;
  return (
    <Why
      kind="info"
      title={
        <>
          Revoked <When at={at} />
          {by === "" ? null : (
            <>
              {" "}
              by <bdi>{user ?? by}</bdi>
            </>
          )}
          {reason === undefined ? null : (
            <>
              : <bdi>{reason}</bdi>
            </>
          )}
        </>
      }
    >
      <Revocation slug={slug} id={node.id} name={node.name} />
    </Why>
  );
}

/** The paths of a node; members see those of their own. */
export const usePeers = (slug: string, id: number, isAsked: boolean) =>
  useList(isAsked ? apiPath(pathsApi.ofNode, { slug, id }, { page_size: "1000" }) : "");

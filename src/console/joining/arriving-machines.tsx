// What happens to the machines that come with a join key, step by step: requests to join, certificates, the first answer.

import { registrationsApi } from "../../api/registrations.ts";
import { nodesApi } from "../../api/nodes.ts";
import { pathsApi } from "../../api/paths/paths.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../contact/api.ts";
import { onSeen } from "../contact/live.ts";
import { currentSlug } from "../contact/me.ts";
import { useNodes } from "../nodes/node-list.ts";
import { keyOf, registrationsPath, type Registration } from "./registrations.ts";
import { refresh, useList, useResource } from "../contact/resource.ts";
import { AnswerDialog } from "./answer-dialogs.tsx";
import { twiceIn } from "./token-words.ts";
import { pathOf } from "../frame/router.ts";
import { exact, timeFormat, utc } from "../words/times.ts";
import { Answers } from "../ui/button.tsx";
import type { SignName } from "../ui/drawings.ts";
import { FormFailure, useAction } from "../ui/form.tsx";
import { Sign } from "../ui/icon.tsx";
import type { Token } from "./paste.tsx";

export const atTime = (at: number) => (
  <time datetime={utc(at)} title={exact(at)}>
    {timeFormat({ timeStyle: "medium" }).format(at)}
  </time>
);
const onDay = (at: number) => timeFormat({ dateStyle: "long" }).format(at);

/** A node that has joined. */
export type Joined = { id: number; name: string; address: string };
/** A use of the key: the node, and when it was, ms since 1970. */
export type Use = { id: number; at: number };

type MomentProps = { sign?: SignName; isNow?: boolean; at?: number | undefined; children: ComponentChildren };

/** A line of what happens. With a sign it is done, and `at` is when, ms; without one it is under way (`isNow`), or to come. */
const Moment = ({ sign, isNow, at, children }: MomentProps) => (
  <li>
    {sign === undefined ? <span class={isNow === true ? "spin" : ""} /> : <Sign name={sign} />}
    <span class={sign === undefined ? "faint" : ""}>{children}</span>
    {at === undefined ? <span /> : atTime(at)}
  </li>
);

type OneProps = {
  token: Token;
  /** It needs an administrator's approval. */
  isWaiting: boolean;
  /** The use of a key that is for one machine; undefined until then. */
  onlyUse: Use | undefined;
  /** The last request with the key, also after its answer. */
  request: Registration | undefined;
  /** The request still waits for an answer. */
  isAsking: boolean;
  /** ms since 1970. */
  approvedAt: number | undefined;
  setJoined(joined: Joined): void;
};

/** The node of a machine that came, and its paths, which say whether a lighthouse answers it. */
function useArrived(slug: string, onlyUse: Use | undefined, setJoined: (joined: Joined) => void) {
  // An empty path reads nothing.
  const path = onlyUse === undefined ? "" : apiPath(nodesApi.retrieve, { slug, id: onlyUse.id });
  const { data: node } = useResource(path);
  const peersPath = onlyUse === undefined ? "" : apiPath(pathsApi.ofNode, { slug, id: onlyUse.id });
  const { data: peers = [] } = useResource(peersPath);
  // Check-ins are not events of the audit log.
  useEffect(
    () =>
      onSeen((contacts) => {
        if (onlyUse === undefined || !contacts.some(([id]) => id === onlyUse.id)) return;
        void Promise.all([refresh(path), refresh(peersPath)]);
      }),
    [path],
  );
  useEffect(() => {
    if (node !== undefined) setJoined({ id: node.id, name: node.name, address: node.ip_address });
  }, [node?.id]);
  return { node, peers };
}

/** What happens to a machine from its key to its first packet. */
export function OneMachine({
  token,
  isWaiting,
  onlyUse,
  request,
  isAsking,
  approvedAt,
  setJoined,
}: OneProps) {
  const slug = currentSlug.value ?? "";
  const { node, peers } = useArrived(slug, onlyUse, setJoined);
  const { data: nodes = [] } = useNodes();
  const lighthouses = nodes.filter(({ is_lighthouse, id }) => is_lighthouse && id !== onlyUse?.id);
  const hasLighthouse = !token.is_lighthouse && lighthouses.length > 0;
  const answer = peers.find(
    ({ peer, probe }) => probe === "answers" && lighthouses.some(({ id }) => id === peer),
  );
  return (
    <div role="status">
      <ol class="live mt8">
        {keyStep()}
        {isAsking && request !== undefined ? <JoinRequest machine={request} /> : null}
        {!isAsking && approvedAt !== undefined ? (
          <Moment sign="on" at={approvedAt}>
            Approved
          </Moment>
        ) : null}
        {isWaiting && request === undefined && onlyUse === undefined ? (
          <Moment>Each node waits until an administrator approves it, here.</Moment>
        ) : null}
        {certificateStep()}
        {contactStep()}
      </ol>
    </div>
  );

  function keyStep() {
    if (request !== undefined)
      return (
        <Moment sign="on" at={Date.parse(request.created_at)}>
          The key was used by{" "}
          <b>
            <bdi>{request.name}</bdi>
          </b>{" "}
          from <bdi>{request.seen_from}</bdi>
        </Moment>
      );
    if (onlyUse === undefined) return <Moment isNow={true}>Waiting for the machine.</Moment>;
    return (
      <Moment sign="on" at={onlyUse.at}>
        The key was used
      </Moment>
    );
  }

  function certificateStep() {
    const end = node?.certificate?.not_after;
    if (onlyUse === undefined || node === undefined || end === undefined)
      return (
        <Moment isNow={onlyUse !== undefined || (request !== undefined && !isAsking)}>
          It gets its certificate and address
        </Moment>
      );
    return (
      <Moment sign="on" at={onlyUse.at}>
        Certificate until {onDay(Date.parse(end))}, address <code>{node.ip_address}</code>
      </Moment>
    );
  }

  function contactStep() {
    if (answer !== undefined)
      return (
        <Moment sign="on" at={Date.parse(answer.reported_at)}>
          <bdi>{answer.peer_name}</bdi> answers it through the tunnel
          {answer.rtt_ms === null ? "" : ` in ${answer.rtt_ms.toPrecision(2)} ms`}
        </Moment>
      );
    if (hasLighthouse)
      return <Moment isNow={node !== undefined}>A lighthouse answers it through the tunnel</Moment>;
    if (node?.online !== true) return <Moment isNow={node !== undefined}>It is online</Moment>;
    const { last_checkin_at: seen } = node;
    return (
      <Moment sign="on" at={seen === null ? undefined : Date.parse(seen)}>
        It is online
      </Moment>
    );
  }
}

/** A request to join, with the buttons that approve or refuse it. */
export function JoinRequest({ machine }: { machine: Registration }) {
  const slug = currentSlug.value ?? "";
  const [isRefusing, setRefusing] = useState(false);
  const { data: open = [] } = useList(registrationsPath(slug));
  const { data: nodes = [] } = useNodes();
  const isTwin =
    twiceIn(open.map(({ name }) => name)).has(machine.name) ||
    nodes.some(({ name }) => name === machine.name);
  const approval = useAction(async () => {
    await call(registrationsApi.approve, { slug, id: machine.id });
    await refresh(registrationsPath(slug));
  });
  return (
    <li>
      <Sign name="wait" />
      <span>
        <bdi>{machine.name}</bdi> asks to join. Compare its key:{" "}
        <code>{keyOf(machine).replace(/(.{4})(?=.)/g, "$1 ")}</code>
        {isTwin ? (
          <span class="is-bad"> Another machine has this name: one of them may be an impostor.</span>
        ) : null}
        <FormFailure error={approval.error} />
      </span>
      <Answers
        name={machine.name}
        give={(verb) => (verb === "refuse" ? setRefusing(true) : void approval.run())}
      />
      {isRefusing ? (
        <AnswerDialog verb="refuse" machine={machine} keepsKey={true} close={() => setRefusing(false)} />
      ) : null}
    </li>
  );
}

type ManyProps = {
  slug: string;
  uses: number;
  used: readonly Use[];
  nameOf(id: number): string;
};

export const ManyMachines = ({ slug, uses, used, nameOf }: ManyProps) => (
  <div role="status">
    <ol class="live mt8">
      {used.length < uses ? (
        <Moment isNow={true}>
          {used.length === 0 ? "Waiting for the machines." : `${used.length} of ${uses} have joined.`}
        </Moment>
      ) : null}
      {used.map(({ id, at }) => (
        <Moment key={id} sign="on" at={at}>
          <a class="name" href={pathOf(slug, "nodes", id)}>
            <bdi>{nameOf(id)}</bdi>
          </a>{" "}
          joined
        </Moment>
      ))}
    </ol>
  </div>
);

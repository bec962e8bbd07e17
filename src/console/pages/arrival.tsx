// The second and third step of adding a node: the line to paste, and who comes with its key, as it happens.

import { organizationsApi } from "../../api/organizations.ts";
import { registrationsApi } from "../../api/node-calls.ts";
import { nodesApi } from "../../api/nodes.ts";
import { pathsApi } from "../../api/paths.ts";
import type { registrationTokensApi } from "../../api/tokens.ts";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, type ApiError } from "../api.ts";
import { useLog } from "../events.ts";
import { onSeen } from "../live.ts";
import { slug } from "../me.ts";
import { useNodes } from "../node-list.ts";
import { registrationsPath, type Registration } from "../registrations.ts";
import { refresh, useList, useResource } from "../resource.ts";
import { nameOfKey, twiceIn } from "../token-words.ts";
import { pathOf } from "../router.ts";
import { exact, timeFormat, utc } from "../times.ts";
import { Button, Segments } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import type { SignName } from "../ui/drawings.ts";
import { FormFailure, useAction } from "../ui/form.tsx";
import { Sign } from "../ui/icon.tsx";
import { Step } from "../ui/page.tsx";
import { FromTerminal, Line } from "../ui/parts.tsx";
import { Qr } from "../ui/qr.tsx";

export type Token = SentOf<typeof registrationTokensApi.create>;

/** Which new nodes wait for an administrator. */
export const useApproval = (own: string) =>
  useResource(apiPath(organizationsApi.retrieve, { slug: own })).data?.node_approval ?? "none";

const mustWait = (approval: ReturnType<typeof useApproval>, isApproved: boolean) =>
  approval === "all" || (approval === "unapproved" && !isApproved);

const atTime = (at: number) => (
  <time datetime={utc(at)} title={exact(at)}>
    {timeFormat({ timeStyle: "medium" }).format(at)}
  </time>
);
const onDay = (at: number) => timeFormat({ dateStyle: "long" }).format(at);

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

export type Joined = { id: number; name: string; address: string };

/** Events of one request. */
const atOnce = 200;

type ArrivalProps = {
  token: Token;
  joined: Joined | undefined;
  setJoined(joined: Joined): void;
  again(): void;
};

/** The second and the third step: the line, and who comes with its key. */
export function Arrival({ token, joined, setJoined, again }: ArrivalProps) {
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
    const name = event?.after?.["name"];
    return typeof name === "string" ? name : `node ${id}`;
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
              <Button kind="primary" href={pathOf(own, "nodes", only.id)}>
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
        if (only === undefined || !contacts.some(([id]) => id === only.id)) return;
        void Promise.all([refresh(path), refresh(peersPath)]);
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
          <a class="name" href={pathOf(own, "nodes", id)}>
            <bdi>{nameOf(id)}</bdi>
          </a>{" "}
          joined
        </Moment>
      ))}
    </ol>
  </div>
);

// The certificate authorities of the organization, and their rotation.

import type { Attention } from "../../api/paths.ts";
import { authoritiesApi } from "../../api/authorities.ts";
import { apiPath } from "../../api/endpoint.ts";
import "../core.ts";
import { useEffect, useState } from "preact/hooks";
import { call } from "../api.ts";
import { actorOf } from "../actor.ts";
import type { Event as AuditEvent } from "../../api/events.ts";
import {
  caWord,
  lastSteering,
  rollbackWarning,
  stepOf,
  trustOf,
  type Authority,
  type Rotation,
} from "../authorities.ts";
import { DuePhones } from "../due-phones.tsx";
import { readEvents } from "../events.ts";
import { mayAdminister, slug } from "../me.ts";
import { useMemberNames } from "../member-names.ts";
import type { StateName } from "../nodes.ts";
import { refresh, useResource } from "../resource.ts";
import { useAttention } from "../use-needs.ts";
import { pathOf } from "../router.ts";
import { Check } from "../ui/form.tsx";
import { MachineList } from "../ui/machine-list.tsx";
import { Export } from "../ui/tools.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Copy, dated, Failure, FromTerminal, Line, Loading, State, When } from "../ui/parts.tsx";

const pathOfCas = (own: string) => apiPath(authoritiesApi.retrieve, { slug: own });

type Action = "start" | "pause" | "resume" | "rollback" | "hurry";

const states: Readonly<Record<Authority["state"], StateName>> = {
  next: "limited",
  active: "online",
  former: "away",
};
/** Machines confirm without an event. */
const rotationReadMs = 5000;

const columns = [
  { title: "Kind", text: ({ kind }: Authority) => kind },
  { title: "Fingerprint", text: ({ fingerprint }: Authority) => fingerprint },
  { title: "Trusted", text: ({ trusted }: Authority) => `${trusted}` },
  { title: "Valid from", text: ({ not_before }: Authority) => not_before },
  { title: "Ends", text: ({ not_after }: Authority) => not_after },
];

export function Certificates() {
  const own = slug.value ?? "";
  const { data, error } = useResource(pathOfCas(own));
  const attention = useAttention(own);
  const isRotating = data !== undefined && data.rotation.phase !== "none";
  useEffect(() => {
    if (!isRotating) return undefined;
    const timer = setInterval(() => document.hidden || void refresh(pathOfCas(own)), rotationReadMs);
    return () => clearInterval(timer);
  }, [own, isRotating]);
  // Reserve the space of the list: the buttons below it must not move under the pointer.
  if (data === undefined || (attention.data ?? attention.error) === undefined)
    return error === undefined ? <Loading /> : <Failure error={error} />;
  const { entries, limit } = data.blocklist;
  const { waiting_for: waiting } = data.rotation;
  return (
    <>
      <div class="title">
        <h1>Certificates</h1>
        <Export
          file={`${own}-cas.csv`}
          items={data.cas}
          columns={[{ title: "State", text: (ca: Authority) => caWord(ca, data.cas) }, ...columns]}
        />
      </div>
      <div class="wide" tabindex={0}>
        <table class="stack">
          <thead>
            <tr>
              <th>State</th>
              <th>For</th>
              <th>Fingerprint</th>
              <th>Machines trust it</th>
              <th>Valid from</th>
              <th>Ends</th>
            </tr>
          </thead>
          <tbody>
            {data.cas.map((ca) => (
              <tr key={ca.fingerprint}>
                <td>
                  <State name={states[ca.state]} word={caWord(ca, data.cas)} />
                </td>
                <td data-title="For">
                  {ca.kind === "overlay" ? "the overlay" : "names and services (X.509)"}
                </td>
                <td>
                  <code title={ca.fingerprint}>{ca.fingerprint.slice(0, 16)}…</code>
                  <Copy text={ca.fingerprint} />
                </td>
                <td data-title="Machines trust it">{trustOf(ca, data.rotation)}</td>
                <td data-title="Valid from">
                  <When at={ca.not_before} />
                </td>
                <td data-title="Ends">
                  <When at={ca.not_after} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="quiet">
        New CAs are valid from some minutes before, as clocks differ. {entries} of at most {limit}{" "}
        certificates are blocked. The list begins anew after a rotation: no machine trusts their CA then.
      </p>
      <OfMachines own={own} data={attention.data} />
      <h2>Rotation</h2>
      <Steps rotation={data.rotation} />
      {isRotating ? <Started key={`${data.rotation.rolling_back}`} own={own} cas={data.cas} /> : null}
      {mayAdminister.value ? (
        <>
          <Steering rotation={data.rotation} />
          <KnownKey />
        </>
      ) : null}
      <MachineList own={own} ids={waiting} title={`Machines that it waits for: ${waiting.length}`} />
      <FromTerminal command={["ca", "show", own]} call={["GET", pathOfCas(own)]} />
    </>
  );
}

/** Machines renew by themselves, so only the first to end are of interest. */
function OfMachines({ own, data }: { own: string; data: Attention | undefined }) {
  if (data === undefined) return null;
  const { ending_first: ending, phones_due } = data;
  const phones = <DuePhones own={own} due={phones_due} />;
  if (ending.length === 0) return phones;
  return (
    <>
      <h2>Certificates of machines</h2>
      <p>
        A machine renews its certificate by itself at a check-in, when a third of its life is left; one that
        is away does so when it is back. These end first:
      </p>
      <ul class="plain-list">
        {ending.map(({ id, name, not_after }) => (
          <li key={id}>
            <a href={pathOf(own, "nodes", id)}>
              <bdi>{name}</bdi>
            </a>{" "}
            <span>ends {dated(Date.parse(not_after))}</span>
          </li>
        ))}
      </ul>
      <p>
        <a href={`${pathOf(own, "nodes")}?columns=state,groups,ends,seen&order=ends`}>
          All machines in this order
        </a>
      </p>
      {phones}
    </>
  );
}

type RotationProps = { rotation: Rotation };

function Steps({ rotation }: RotationProps) {
  const { phase, paused, waiting_for, next_step_at, auto } = rotation;
  const machines = waiting_for.length === 1 ? "one machine" : `${waiting_for.length} machines`;
  return (
    <div role="status">
      <p>
        {stepOf(rotation)} {paused ? <strong>It is paused.</strong> : null}
      </p>
      {waiting_for.length === 0 ? null : (
        <p>{`It waits for ${machines} to confirm. One that goes away is not waited for: it catches up when it is back, or can be revoked.`}</p>
      )}
      {next_step_at === null ? null : (
        <p>
          The next step follows <When at={next_step_at} />.
        </p>
      )}
      {phase === "none" ? (
        <p class="quiet">
          {auto
            ? "The control plane starts one by itself before the CAs end."
            : "It is started by hand only; Settings can change that."}
        </p>
      ) : null}
    </div>
  );
}

/** The user who started the rotation, or rolled it back. The event is not older than its CAs. */
function Started({ own, cas }: { own: string; cas: readonly Authority[] }) {
  const names = useMemberNames(own);
  const [event, set] = useState<AuditEvent | undefined>(undefined);
  useEffect(() => {
    const start = Math.max(...cas.map(({ not_before }) => Date.parse(not_before)));
    // Optional: without it, the page shows less.
    readEvents(own, { start, end: undefined }, () => undefined).then(
      ({ events }) => set(lastSteering(events)),
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

/** Shown only when it is needed. */
function KnownKey() {
  return (
    <details>
      <summary>What if a key of a CA may be known to others?</summary>
      <p>
        Start a rotation, and tick there that a key may be known. Do not roll it back: that returns to the
        known key. Whoever has the key can make certificates until the last step: machines trust the old CA
        until they have confirmed step 3, and one that is away until it is back. If a rotation is running
        already, this hurries it:
      </p>
      <Line text={`agent admin ca rotate ${slug.value ?? ""} --now`} />
    </details>
  );
}

const questions: Readonly<
  Record<Action, { title: string; action: string; effect: string; flags: readonly string[] }>
> = {
  start: {
    title: "Rotate the CAs?",
    action: "Start the rotation",
    effect:
      "All machines get the new CAs beside the present ones, then certificates of the new CAs, then they forget the present ones. Each step waits for all machines that are online; one that is away catches up when it is back. All tunnels stay up. You can pause it, or roll it back.",
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
    effect: "The machines return to the CAs from before the rotation, step by step. All tunnels stay up.",
    flags: ["--rollback"],
  },
  hurry: {
    title: "Go on without waiting for tunnels?",
    action: "Do not wait for tunnels",
    effect:
      "Machines end their trust in the former CAs at once. Tunnels that still use one are torn down, and can lose packets for some seconds. Choose it when a key may be known to others.",
    flags: ["--now"],
  },
};

function Steering({ rotation: { phase, paused, rolling_back } }: RotationProps) {
  const [asked, ask] = useState<Action | undefined>(undefined);
  const button = (action: Action, text: string) => (
    <button type="button" onClick={() => ask(action)}>
      {text}
    </button>
  );
  return (
    <>
      <div class="actions">
        {phase === "none" ? button("start", "Start a rotation") : null}
        {phase !== "none" && !paused ? button("pause", "Pause") : null}
        {phase !== "none" && paused ? button("resume", "Resume") : null}
        {phase !== "none" && !rolling_back ? (
          <>
            {button("hurry", "Do not wait for tunnels")} {button("rollback", "Roll back")}
          </>
        ) : null}
      </div>
      {asked === undefined ? null : <Steer action={asked} close={() => ask(undefined)} />}
    </>
  );
}

function Steer({ action, close }: { action: Action; close(): void }) {
  const own = slug.value ?? "";
  const [isNow, setNow] = useState(false);
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
              <Line text={`agent admin ca rotate ${own} --now`} />
            </>
          ) : null}
          {action === "start" ? (
            <Check
              label="A key of the present CAs may be known to others: do not wait for tunnels. Those that still use a former CA are torn down, and can lose packets for some seconds"
              checked={isNow}
              set={setNow}
            />
          ) : null}
          <FromTerminal
            command={["ca", "rotate", own, ...question.flags, ...(isNow ? ["--now"] : [])]}
            call={["POST", apiPath(authoritiesApi.rotate, { slug: own }), body]}
          />
        </>
      }
      run={async () => {
        await call(authoritiesApi.rotate, { slug: own }, body);
        await refresh(pathOfCas(own));
      }}
      close={close}
    />
  );
}

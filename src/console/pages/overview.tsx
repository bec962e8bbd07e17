// What needs a user's attention, each with the action; and how many machines are online.

import type { Warning } from "../../api/servers.ts";
import type { Relay, Attention } from "../../api/paths.ts";
import "../core.ts";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { stepOf, type Rotation } from "../authorities.ts";
import { mayAdminister, slug } from "../me.ts";
import { onSeen } from "../live.ts";
import { degraded, onlineOf, testsWords } from "../needs.ts";
import { vulnerabilitiesOf } from "../nodes.ts";
import { DuePhones } from "../due-phones.tsx";
import { OwnMachines } from "../own-machines.tsx";
import { relayText } from "../relays.ts";
import { pathOf } from "../router.ts";
import { secondLighthouse } from "../../protocol/second-lighthouse.ts";
import { refresh } from "../resource.ts";
import { now } from "../times.ts";
import { attentionPath, serversPath, useNeeds, type Needs } from "../use-needs.ts";
import { OnlinePlot } from "../ui/online-plot.tsx";
import { Empty, Failure, Line, Loading, moment, State, When } from "../ui/parts.tsx";

/** Maximum shown of each kind; the rest is counted, and a link leads to it. */
const maxShown = 20;
/** Check-ins are no events. Those of this time are read together. */
const settleMs = 3000;

/** Reads again after machines were in contact. */
function useContacts(own: string): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const end = onSeen(() => {
      timer ??= setTimeout(() => {
        timer = undefined;
        void Promise.all([refresh(attentionPath(own)), refresh(serversPath)]);
      }, settleMs);
    });
    return () => {
      end();
      clearTimeout(timer);
    };
  }, [own]);
}

export function Overview() {
  const own = slug.value ?? "";
  const needs = useNeeds();
  useContacts(own);
  const { machines, error } = needs;
  const plane = <OfControlPlane warnings={needs.warnings} />;
  const waiting = (
    <>
      <OwnMachines own={own} /> <Waiting own={own} waiting={needs.waiting} />{" "}
      {needs.failingTests ? (
        <>
          <h2>Policy</h2>
          <p>
            {testsWords(needs.failingTests)}: <a href={pathOf(own, "access")}>Access</a>
          </p>
        </>
      ) : null}
    </>
  );
  const backup = needs.lastBackupAt === undefined ? null : <Backup at={needs.lastBackupAt} />;
  if (machines === undefined)
    return (
      <>
        <h1>Overview</h1>
        {error === undefined ? <Loading rows={16} /> : <Failure error={error} />}
      </>
    );
  if (machines.nodes === 0)
    return (
      <>
        <h1>Overview</h1>
        {plane} {waiting} {backup}
        <Empty text="There is no machine yet. The first one is usually a lighthouse: a machine with a public address.">
          <a class="button primary" href={pathOf(own, "machines", "add")}>
            Add a machine
          </a>
        </Empty>
      </>
    );
  const { words, isBad } = onlineOf(machines);
  return (
    <>
      <h1>Overview</h1>
      <p>
        {isBad ? (
          <>
            <State name="attention" word={words} />{" "}
            <a href={`${pathOf(own, "machines")}?show=away&order=-seen`}>Which are away?</a>
          </>
        ) : (
          words
        )}
        {machines.nodes === machines.active ? null : (
          <>
            {" "}
            <span class="quiet">{machines.nodes - machines.active} more: phones, or not registered yet.</span>
          </>
        )}
      </p>
      {plane} {waiting}
      <OfMachines own={own} machines={machines} />
      <OneLighthouse own={own} machines={machines} />
      <DuePhones own={own} due={machines.phones_due} />
      {needs.rotation === undefined ? null : <Running own={own} rotation={needs.rotation} />}
      <Relays relays={needs.relays} />
      <Listed
        title="Webhooks that fail"
        all={pathOf(own, "webhooks")}
        items={needs.webhooks.map(({ id, url }) => (
          <a href={pathOf(own, "webhooks", id)}>
            <bdi>{url}</bdi>
          </a>
        ))}
      />
      {backup}
      <OnlinePlot own={own} />
    </>
  );
}

/** Such as a jump of its clock, or a full disk. */
function OfControlPlane({ warnings }: { warnings: readonly Warning[] }) {
  if (warnings.length === 0) return null;
  return (
    <>
      <h2>Control plane</h2>
      <ul>
        {warnings.map(({ code, text, hint }) => (
          <li key={code}>
            <State name="attention" word={text} /> <span class="quiet">{hint}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** Problems of machines. */
function OfMachines({ own, machines }: { own: string; machines: Attention }) {
  const { not_applied, not_renewed, vulnerable_engines: engines } = machines;
  const ill = degraded(machines, now.value).filter(({ count }) => count > 0);
  const all = pathOf(own, "machines");
  const named = ({ id, name }: { id: number; name: string }, more: unknown) => (
    <>
      <a href={pathOf(own, "machines", id)}>
        <bdi>{name}</bdi>
      </a>{" "}
      {more}
    </>
  );
  return (
    <>
      {ill.map(({ title, show, count, needs }) => (
        <Listed
          key={show}
          title={title}
          items={needs.map((each) => named(each, <bdi>{each.more}</bdi>))}
          count={count}
          all={`${all}?show=${show}`}
        />
      ))}
      {ill.length === 0 ? null : (
        <>
          <p class="quiet">On the machine, this says why:</p>
          <Line text="agent doctor" />
          {not_applied.count === 0 ? null : (
            <>
              <p class="quiet">This applies the newest configuration:</p>
              <Line text="sudo agent sync-config" />
            </>
          )}
        </>
      )}
      {not_renewed.count === 0 ? (
        <p class="quiet">No certificate is overdue for renewal.</p>
      ) : (
        <>
          <Listed
            title="Certificates that are not renewed"
            items={not_renewed.first.map((each) =>
              named(each, <>ends {moment(Date.parse(each.not_after))}</>),
            )}
            count={not_renewed.count}
            all={`${all}?order=ends&columns=state,ends,seen`}
          />
          <p class="quiet">A machine renews when it checks in. On the machine, this asks at once:</p>
          <Line text="sudo agent checkin" />
        </>
      )}
      <Listed
        title="Engines with known vulnerabilities"
        items={engines.first.map((each) =>
          named(
            each,
            <bdi>
              runs engine {each.overlay_version}: {vulnerabilitiesOf(each)}
            </bdi>,
          ),
        )}
        count={engines.count}
        all={`${all}?show=vulnerable`}
      />
      {engines.count === 0 ? null : (
        <>
          <p class="quiet">On the machine, this updates it:</p>
          <Line text="sudo agent overlay update" />
        </>
      )}
    </>
  );
}

function OneLighthouse({ own, machines }: { own: string; machines: Attention }) {
  const advice = secondLighthouse(own, { nodes: machines.active, lighthouses: machines.lighthouses });
  if (advice === undefined || !mayAdminister.value) return null;
  const [here, there] = advice.lines;
  return (
    <>
      <h2>One lighthouse</h2>
      <p>{advice.why}:</p>
      <Line text={here} />
      <Line text={`sudo ${there}`} />
    </>
  );
}

/** Relayed traffic, because it costs money: shown from the first report on. */
function Relays({ relays }: { relays: readonly Relay[] }) {
  const counted = relays.filter(({ bytes }) => bytes !== null);
  if (counted.length === 0) return null;
  const own = slug.value ?? "";
  const order = counted.toSorted(
    (a, b) => Number(b.paused) - Number(a.paused) || (b.bytes ?? 0) - (a.bytes ?? 0),
  );
  return (
    <Listed
      title="Relays"
      all={`${pathOf(own, "machines")}?show=relay`}
      items={order.map((relay) => (
        <>
          <a href={pathOf(own, "machines", relay.node)}>
            <bdi>{relay.node_name}</bdi>
          </a>
          <span class={relay.paused ? "limited" : "quiet"}> {relayText(relay)}</span>
        </>
      ))}
    />
  );
}

function Waiting({ own, waiting: data }: { own: string; waiting: Needs["waiting"] }) {
  if (data.length === 0) return null;
  return (
    <>
      <Listed
        title="Machines that wait for approval"
        all={pathOf(own, "machines", "waiting")}
        items={data.map((machine) => (
          <>
            <bdi>{machine.name}</bdi> <span class="quiet">from {machine.seen_from}</span>{" "}
            <When at={machine.created_at} />
          </>
        ))}
      />
      <p>
        <a class="button primary" href={pathOf(own, "machines", "waiting")}>
          Approve or refuse
        </a>
      </p>
    </>
  );
}

type RunningProps = { own: string; rotation: Rotation };

function Running({ own, rotation }: RunningProps) {
  const { paused, rolling_back, waiting_for } = rotation;
  return (
    <>
      <h2>Rotation of the CAs</h2>
      <p>
        {stepOf(rotation)} {paused ? <strong>It is paused.</strong> : null}
      </p>
      {waiting_for.length === 0 ? null : (
        <p>
          It waits for {waiting_for.length === 1 ? "1 machine" : `${waiting_for.length} machines`} to confirm.
        </p>
      )}
      <p>
        <a class="button" href={pathOf(own, "certificates")}>
          {paused ? (rolling_back ? "Resume it" : "Resume or roll back") : "Look at it"}
        </a>
      </p>
    </>
  );
}

/** The backup of the control plane: only staff can make one. */
function Backup({ at }: { at: string | null }) {
  return (
    <>
      <h2>Backup</h2>
      <p>
        {at === null ? (
          "There is no backup of the control plane yet."
        ) : (
          <>
            The last backup of the control plane was made <When at={at} />.
          </>
        )}{" "}
        On its machine:
      </p>
      <Line text="sudo agent admin backup /backup/control-$(date +%F).db" />
    </>
  );
}

type ListedProps = { title: string; items: readonly VNode[]; count?: number; all: string };

/** `count`: of all, if `items` are not all. `all`: where all of them are. */
function Listed({ title, items, count = items.length, all }: ListedProps) {
  if (items.length === 0) return null;
  const shown = items.slice(0, maxShown);
  return (
    <>
      <h2>{title}</h2>
      <ul class="plain-list">
        {shown.map((item, at) => (
          <li key={at}>{item}</li>
        ))}
        {count > shown.length ? (
          <li>
            <a href={all}>and {count - shown.length} more</a>
          </li>
        ) : null}
      </ul>
    </>
  );
}

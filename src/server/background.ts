// The list of everything that runs besides requests. Each part says where it runs: on each replica, for what this process
// has in memory, or on one replica, under a lease (store/leases.ts).

import { hostname } from "node:os";
import { buildInfo } from "../build-info.ts";
import { messageOf } from "../base/errors.ts";
import { recordAllNotes } from "./history/record-notes.ts";
import { makeClockWatch } from "./certificates/clock-watch.ts";
import { makeEarlyDue } from "./nodes/lifecycle/renewal.ts";
import { announceExpiring } from "./nodes/lifecycle/expiring.ts";
import { runDueUpkeep } from "./nodes/lifecycle/upkeep.ts";
import { endRequests } from "./nodes/joining/registration-requests.ts";
import { reauthenticate } from "./nodes/lifecycle/reauthentication.ts";
import { makeAlarms } from "./alarms/evaluate.ts";
import { recordAway } from "./nodes/contact/away-nodes.ts";
import { endSilentNodes } from "./nodes/contact/silence.ts";
import { publishLateNames } from "./names/publish.ts";
import { checkLeavers } from "./oidc/gone-at-provider.ts";
import { endUnproven } from "./oidc/unproven-users.ts";
import { deleteEndedPaths } from "./paths/path-reports.ts";
import { issueFirstIpv6 } from "./rollout/first-ipv6.ts";
import { checkPolicies, revertUnconfirmed } from "./policy-files/policy-upkeep.ts";
import { countOnline } from "./metrics/online-history.ts";
import { makeSampler, sampleMs } from "./metrics/server-history.ts";
import { makeRollouts } from "./rollout/rollout-turn.ts";
import { makeRotations } from "./rollout/rotation-schedule.ts";
import { deleteUnwantedFlows } from "./retention/ended-records.ts";
import { retain } from "./retention/retention.ts";
import { inTurn } from "./for-all.ts";
import type { Services } from "./services.ts";
import { makeLoop, type Loop, type Turn } from "./background-loop.ts";
import { makeLeases, type Lease, type Leases } from "./store/leases.ts";
import type { LastError } from "./http/remember-errors.ts";
import { forgetReplica, noteReplica } from "./store/replicas.ts";
import { makeAcmeRenewal } from "./tls/acme/renewal.ts";
import { makeDeliveries } from "./webhooks/deliveries.ts";

type Part = Loop & { name: string; runs: "each replica" | "one replica" };

/** Maximum delay of what is due for nodes: renewals, late names, expiring certificates. */
const upkeepMs = 5000;
/** Maximum delay until a jump of the clock is reported. Nothing is signed in the meantime. */
const clockMs = 1000;
/** Maximum delay of the rollback of an unconfirmed policy. */
const policiesMs = 1000;
/** Maximum delay until the audit log has what decides who reaches whom. */
const historyMs = 30_000;
/** Maximum delay of the end of an ephemeral node. */
const silenceMs = 2000;
/** Each fifth of these turns also looks for nodes that are away, and for other causes of alarms. */
const awayTurns = 5;
/** The longest delay until users are notified that their nodes end, and until these end. */
const ownersMs = 30_000;
/** Maximum delay until a CA rotation begins its next phase. */
const rotationMs = 1000;
/** Maximum delay until a ring of a rollout goes on, or goes back; longer where a turn takes long. */
const rolloutMs = 1000;
/** Maximum delay until paths of revoked nodes are deleted. They are not shown in the meantime. */
const pathsMs = 60_000;
/** How often a server looks for users about whom it has to ask their provider. For each user, that is due once an hour. */
const leaversMs = 60_000;
/** Maximum delay of counting the nodes that are online. */
const onlineCountsMs = 20_000;
/** How often a server asks whether retention is due. One server does it once an hour. */
const retentionMs = 300_000;
/** Delay after the start until the database is examined, and the interval at which PostgreSQL is asked. */
const pagesMs = 60_000;
/** How often all pages of SQLite are read. */
const pagesEveryMs = 86_400_000;
/** How often they are read while there is damage, which may have been the disk's. */
const damagedEveryMs = 600_000;
/** How often a release that is about to expire is logged. */
const releaseMs = 86_400_000;
/** How often the certificate is looked at; the first one is ordered this long after the start. */
const acmeMs = 1000;
/** Maximum delay until a lighthouse of this machine is reached by TCP. */
const planeFallbackMs = 10_000;

/** Starts all parts. Returns a function that stops them in reverse order; call it before the database closes. */
export function startBackground(
  services: Services,
  lastError: () => LastError | undefined,
): () => Promise<void> {
  const self = { id: Buffer.from(services.system.random(12)).toString("hex"), host: hostname() };
  const { leases, leave } = joinReplicas(services, self, lastError);
  const samples = loopOfEach(services, "samples of this server", sampleMs, makeSampler(services, self));
  const parts = [...partsOf(services, leases), samples];
  leases.start();
  for (const part of parts) part.start();
  return async () => {
    for (const part of parts.toReversed()) await part.stop();
    await leases.stop();
    await leave();
  };
}

/** This process. */
type Self = { id: string; host: string };

/** The leases of this replica. Each renewal also updates its row for the other replicas. */
function joinReplicas(services: Services, { id, host }: Self, lastError: () => LastError | undefined) {
  const { db, system, clock, secretKey, log } = services;
  const self = { id, host, version: buildInfo.version, now: clock.wall, secretKey };
  const leases = makeLeases({
    db,
    system,
    log,
    holder: id,
    alongside: (tx) =>
      noteReplica(tx, self, { noticesBehindMs: db.noticesBehindMs(), lastError: lastError() }),
  });
  const leave = async () => {
    if (db.dialect === "postgres") await forgetReplica(db, id).catch(() => undefined);
  };
  return { leases, leave };
}

function partsOf(services: Services, leases: Leases): Part[] {
  /** A part that runs on one replica. `make` gets services whose writes throw once another replica has the lease. */
  const leased = (name: string, make: (services: Services, lease: Lease) => Loop): Part => {
    const lease = leases.of(name);
    return { name, runs: "one replica", ...make({ ...services, db: lease.db }, lease) };
  };
  /** A loop that runs on one replica. `make` gets services as above, and returns the work of a turn. */
  const leasedLoop = (name: string, everyMs: number, make: (own: Services) => Turn): Part =>
    leased(name, (own, lease) => makeLoop(name, everyMs, make(own), { ...own, lease }));
  /** Writes what waits in memory when the server stops. */
  const writerOf = (name: string, { stop }: Pick<Part, "stop">): Part => ({
    name,
    runs: "each replica",
    start: () => undefined,
    stop,
  });
  return [
    writerOf("check-in reports", services.reports),
    writerOf("reports of paths", services.pathReports),
    writerOf("reports of flows", services.flowReports),
    loopOfEach(services, "watch of the clock", clockMs, makeClockWatch(services)),
    pageWatch(services),
    planeFallbackOf(services),
    releaseWatch(services),
    preloadX509(services),
    prepareBudget(services),
    leased("webhook deliveries", (own, lease) =>
      // Outcomes are written without the lease: what was sent is recorded even if another replica sends now.
      makeDeliveries({ ...own, outcomes: services.db, mayRun: lease.take }),
    ),
    leasedLoop("upkeep of nodes", upkeepMs, (own) => async () => {
      await inTurn(
        () => runDueUpkeep(own),
        // Certificates that a wrong clock made, which are not valid yet, become due for renewal.
        () => makeEarlyDue(own),
        () => publishLateNames(own),
        () => issueFirstIpv6(own),
        () => announceExpiring(own),
        // Registrations that wait for approval, and have expired.
        () => endRequests(own),
      );
    }),
    leasedLoop("ephemeral nodes", silenceMs, silenceWatch),
    leasedLoop("confirmations of nodes", ownersMs, (own) => () => reauthenticate(own)),
    leasedLoop("policies", policiesMs, (own) => async () => {
      await inTurn(
        () => revertUnconfirmed(own),
        () => checkPolicies(own),
      );
    }),
    leasedLoop("history of the policy", historyMs, (own) => () => recordAllNotes(own)),
    leasedLoop("CA rotations", rotationMs, makeRotations),
    leasedLoop("updates in rings", rolloutMs, makeRollouts),
    ...acmeOf(services, leasedLoop),
    leasedLoop(
      "upkeep of paths",
      pathsMs,
      (own) => (closing) =>
        inTurn(
          () => deleteEndedPaths(own),
          () => deleteUnwantedFlows(own, () => closing.aborted),
        ),
    ),
    leasedLoop("people at their providers", leaversMs, (own) => (closing) => checkLeavers(own, closing)),
    leasedLoop("people without a proof", leaversMs, (own) => () => endUnproven(own)),
    leasedLoop("online counts", onlineCountsMs, (own) => () => countOnline(own)),
    leasedLoop("retention", retentionMs, (own) => (closing) => retain(own, closing)),
  ];
}

/**
 * Ends ephemeral nodes that are silent, and looks for nodes that are away and for other causes of alarms. All under one
 * lease, whose name must stay: a replica of another version must not raise the same alarms meanwhile.
 */
function silenceWatch(own: Services): Turn {
  let turn = 0;
  const evaluate = makeAlarms(own);
  const lookForAlarms = async () => evaluate(await recordAway(own));
  return () => {
    const isAwayTurn = turn++ % awayTurns === 0;
    return inTurn(() => endSilentNodes(own), ...(isAwayTurn ? [lookForAlarms] : []));
  };
}

/** A loop that needs no lease. */
function loopOfEach(
  services: Services,
  name: string,
  everyMs: number,
  turn: Turn,
  options?: { isAtOnce: boolean },
): Part {
  const lease = { take: () => true };
  return { name, runs: "each replica", ...makeLoop(name, everyMs, turn, { ...services, lease }, options) };
}

function planeFallbackOf(services: Services): Part {
  const name = "TCP fallback for lighthouses of this machine";
  return loopOfEach(services, name, planeFallbackMs, services.planeFallback.look, { isAtOnce: true });
}

/** Finds damage of the database that no statement meets. */
function pageWatch(services: Services): Part {
  const { db, system } = services;
  let lastAt = Number.NEGATIVE_INFINITY;
  const pauseMs = () => {
    if (db.dialect === "postgres") return 0;
    return db.damage() === undefined ? pagesEveryMs : damagedEveryMs;
  };
  return loopOfEach(services, "examination of the database", pagesMs, async () => {
    const now = system.monotonic();
    if (now - lastAt < pauseMs()) return;
    lastAt = now;
    await db.examine(system);
  });
}

/** Installed machines take no update from an expired release. */
function releaseWatch(services: Services): Part {
  const { log, publicUrl, system } = services;
  return loopOfEach(services, "expiry of the release", releaseMs, async () => {
    const { agingOf, placesOf } = await import("../release/handed-out.ts");
    const aging = agingOf(placesOf(services), publicUrl, system.now());
    if (aging !== undefined)
      log.warn(aging, { hint: "Upgrade the control plane, or ask the publisher for a newer release." });
  });
}

function acmeOf(
  { acme }: Services,
  leasedLoop: (name: string, everyMs: number, make: (own: Services) => Turn) => Part,
): Part[] {
  if (acme === undefined) return [];
  return [leasedLoop("TLS certificate by ACME", acmeMs, (own) => makeAcmeRenewal(acme, own))];
}

/** A new token or organization announces registrations: load the X.509 library before the first one. */
function preloadX509({ db }: Services): Part {
  let stop: () => void = () => undefined;
  return {
    name: "preloading of the X.509 library",
    runs: "each replica",
    start() {
      stop = db.listen("auth", () => {
        stop();
        void import("../pki/x509.ts");
      });
    },
    stop: async () => stop(),
  };
}

function prepareBudget({ budget, log }: Services): Part {
  const closing = new AbortController();
  let running: Promise<void> | undefined;
  return {
    name: "first measurement of what organizations store",
    runs: "each replica",
    start() {
      running = budget.prepare(closing.signal).catch((error: unknown) => {
        log.info("Not measured what all organizations store; a write measures it", {
          reason: messageOf(error),
        });
      });
    },
    async stop() {
      closing.abort();
      await running;
    },
  };
}

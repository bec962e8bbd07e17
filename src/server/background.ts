// The list of everything that runs besides requests. Each part says where it runs: on each replica, for what this process
// has in memory, or on one replica, under a lease (store/leases.ts).

import { hostname } from "node:os";
import { buildInfo } from "../build-info.ts";
import { messageOf } from "../base/errors.ts";
import { makeClockWatch } from "./certificates/clock-watch.ts";
import { makeEarlyDue } from "./nodes/lifecycle/renewal.ts";
import { announceExpiring } from "./nodes/lifecycle/expiring.ts";
import { runDueUpkeep } from "./nodes/lifecycle/upkeep.ts";
import { endRequests } from "./nodes/joining/registration-requests.ts";
import { reauthenticate } from "./nodes/lifecycle/reauthentication.ts";
import { tellAway } from "./nodes/contact/away.ts";
import { endSilentNodes } from "./nodes/contact/silence.ts";
import { publishLateNames } from "./names/publish.ts";
import { checkLeavers } from "./oidc/gone-at-provider.ts";
import { endUnproven } from "./oidc/unproven.ts";
import { deleteEndedPaths } from "./paths/reports.ts";
import { advanceRollingUpdates } from "./rollout/rolling-update.ts";
import { checkPolicies, revertUnconfirmed } from "./policy-files/upkeep.ts";
import { countOnline } from "./metrics/online-history.ts";
import { makeSampler, sampleMs } from "./metrics/server-history.ts";
import { makeRotations } from "./rollout/rotation-schedule.ts";
import { retain } from "./retention/retention.ts";
import type { Services } from "./services.ts";
import { LeaseLost, makeLeases, type Lease, type Leases } from "./store/leases.ts";
import { forgetReplica, noteReplica, type LastError } from "./store/replicas.ts";
import { makeAcmeRenewal } from "./tls/acme/renewal.ts";
import { makeDeliveries } from "./webhooks/deliveries.ts";

type Loop = { start(): void; stop(): Promise<void> };
type Part = Loop & { name: string; runs: "each replica" | "one replica" };

const upkeepMs = 5000;
/** Maximum delay until a jump of the clock is reported. Nothing is signed in the meantime. */
const clockMs = 1000;
/** Maximum delay of the rollback of an unconfirmed policy. */
const policiesMs = 1000;
/** Maximum delay of the end of an ephemeral node. */
const silenceMs = 2000;
/** After this many of these turns, looks for nodes that are away, of which organizations are notified. */
const awayTurns = 10;
/** The longest delay until users are notified that their nodes end, and until these end. */
const ownersMs = 30_000;
/** No phase of a CA rotation is shorter. */
const rotationMs = 1000;
/** Paths of revoked nodes are not shown in the meantime. */
const pathsMs = 60_000;
/** Maximum delay until a provider is asked whether a user is still there; that is due once an hour. */
const leaversMs = 60_000;
/** Maximum delay of counting the nodes that are online. */
const onlineCountsMs = 20_000;
/** How often a server asks whether retention is due: once an hour, one server does it. */
const retentionMs = 300_000;
/** Delay after the start until the database is examined, and the interval at which PostgreSQL is asked. */
const pagesMs = 60_000;
/** How often all pages of SQLite are read: once a day, and while there is damage, which may have been the disk's. */
const [pagesEveryMs, damagedEveryMs] = [86_400_000, 600_000];
/** The first certificate is ordered this long after the start. */
const acmeMs = 1000;

/** Starts all parts. Returns a function that stops them in reverse order; call it before the database closes. */
export function startBackground(
  services: Services,
  lastError: () => LastError | undefined,
): () => Promise<void> {
  const self = { id: Buffer.from(services.system.random(12)).toString("hex"), host: hostname() };
  const { leases, leave } = joinReplicas(services, self, lastError);
  const parts = [...partsOf(services, leases), samplesOf(services, self)];
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

/** A loop of which one replica runs each turn. `make` gets services whose writes carry the fence. */
type Leased = (name: string, make: (services: Services, lease: Lease) => Loop) => Part;

function partsOf(services: Services, leases: Leases): Part[] {
  const leased: Leased = (name, make) => {
    const lease = leases.of(name);
    return { name, runs: "one replica", ...make({ ...services, db: lease.db }, lease) };
  };
  return [
    { name: "check-in reports", runs: "each replica", start: () => undefined, stop: services.reports.stop },
    {
      name: "reports of paths",
      runs: "each replica",
      start: () => undefined,
      stop: services.pathReports.stop,
    },
    clockWatch(services),
    pageWatch(services),
    preloadX509(services),
    prepareBudget(services),
    leased("webhook deliveries", (own, lease) =>
      makeDeliveries({ ...own, outcomes: services.db, mayRun: lease.take }),
    ),
    leased("upkeep of nodes", (own, lease) => {
      const upkeep = async () => {
        await runDueUpkeep(own);
        await makeEarlyDue(own);
        await publishLateNames(own);
        await advanceRollingUpdates(own);
        await announceExpiring(own);
        await endRequests(own);
      };
      return repeated("upkeep of nodes", upkeepMs, upkeep, { ...own, lease });
    }),
    leased("ephemeral nodes", (own, lease) => {
      let turn = 0;
      const work = async () => {
        await endSilentNodes(own);
        if (turn++ % awayTurns === 0) await tellAway(own);
      };
      return repeated("ephemeral nodes", silenceMs, work, { ...own, lease });
    }),
    leased("confirmations of nodes", (own, lease) =>
      repeated("confirmations of nodes", ownersMs, () => reauthenticate(own), { ...own, lease }),
    ),
    leased("policies", (own, lease) => {
      const work = async () => {
        await revertUnconfirmed(own);
        await checkPolicies(own);
      };
      return repeated("policies", policiesMs, work, { ...own, lease });
    }),
    leased("CA rotations", (own, lease) =>
      repeated("CA rotations", rotationMs, makeRotations(own), { ...own, lease }),
    ),
    ...acmeOf(services, leased),
    leased("upkeep of paths", (own, lease) =>
      repeated("upkeep of paths", pathsMs, () => deleteEndedPaths(own), { ...own, lease }),
    ),
    leased("people at their providers", (own, lease) =>
      repeated("people at their providers", leaversMs, (signal) => checkLeavers(own, signal), {
        ...own,
        lease,
      }),
    ),
    leased("people without a proof", (own, lease) =>
      repeated("people without a proof", leaversMs, () => endUnproven(own), { ...own, lease }),
    ),
    leased("online counts", (own, lease) =>
      repeated("online counts", onlineCountsMs, () => countOnline(own), { ...own, lease }),
    ),
    leased("retention", (own, lease) =>
      repeated("retention", retentionMs, (signal) => retain(own, signal), { ...own, lease }),
    ),
  ];
}

function samplesOf(services: Services, self: Self): Part {
  const name = "samples of this server";
  const lease = { take: () => true };
  return {
    name,
    runs: "each replica",
    ...repeated(name, sampleMs, makeSampler(services, self), { ...services, lease }),
  };
}

function clockWatch(services: Services): Part {
  const name = "watch of the clock";
  const lease = { take: () => true };
  return {
    name,
    runs: "each replica",
    ...repeated(name, clockMs, makeClockWatch(services), { ...services, lease }),
  };
}

/** Finds damage that no statement meets. */
function pageWatch(services: Services): Part {
  const { db, system } = services;
  const name = "examination of the database";
  const lease = { take: () => true };
  let lastAt = Number.NEGATIVE_INFINITY;
  const pauseMs = () => {
    if (db.dialect === "postgres") return 0;
    return db.damage() === undefined ? pagesEveryMs : damagedEveryMs;
  };
  const work = async () => {
    const now = system.monotonic();
    if (now - lastAt < pauseMs()) return;
    lastAt = now;
    await db.examine(system);
  };
  return { name, runs: "each replica", ...repeated(name, pagesMs, work, { ...services, lease }) };
}

function acmeOf({ acme }: Services, leased: Leased): Part[] {
  if (acme === undefined) return [];
  const name = "TLS certificate by ACME";
  return [
    leased(name, (own, lease) => repeated(name, acmeMs, makeAcmeRenewal(acme, own), { ...own, lease })),
  ];
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

/** How often a part that fails continuously is logged. */
const repeatMs = 600_000;

/** Runs `work` every `everyMs` while this replica has the lease, if the work needs one. Logs failures; the next turn retries. */
function repeated(
  name: string,
  everyMs: number,
  work: (closing: AbortSignal) => Promise<void>,
  { system, log, lease }: Pick<Services, "system" | "log"> & { lease: Pick<Lease, "take"> },
): Loop {
  const closing = new AbortController();
  let running: Promise<void> | undefined;
  const told = new Map<string, number>();
  const warn = (reason: string) => {
    const [now, last = Number.NEGATIVE_INFINITY] = [system.monotonic(), told.get(reason)];
    if (now - last < repeatMs) return;
    // Reasons may name what differs each time.
    if (told.size >= 20) told.clear();
    told.set(reason, now);
    log.warn(`${name} failed; retrying`, { reason });
  };
  const run = async () => {
    for (;;) {
      // The stop rejects the sleep.
      await system.sleep(everyMs, closing.signal).catch(() => undefined);
      if (closing.signal.aborted) return;
      if (!lease.take()) continue;
      await work(closing.signal).then(
        () => told.clear(),
        (error: unknown) => {
          if (error instanceof LeaseLost) log.info(error.message);
          else warn(messageOf(error));
        },
      );
    }
  };
  return {
    start: () => void (running = run()),
    async stop() {
      closing.abort();
      await running;
    },
  };
}

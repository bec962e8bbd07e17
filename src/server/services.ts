// Everything that routes need, composed once by makeServices. Lower floors must not import this file: they declare the
// members that they use.

import type { Warning } from "../api/servers.ts";
import { openAuthorities, type Authorities } from "./certificates/authorities.ts";
import { makeBoundedCache, type BoundedCache } from "./config/bounded-cache.ts";
import { makeHeldPolls, type HeldPolls } from "./config/held-polls.ts";
import { makeRenderings, type Renderings } from "./config/renderings.ts";
import { makeViews, type Views } from "./config/organization-views.ts";
import type { InTurn } from "./http/fair-queue.ts";
import { makeHeavyWork } from "./http/heavy-work.ts";
import { makeMeters, type Meters } from "./http/meters.ts";
import { limits, makeThrottle, type Throttle } from "./http/throttle.ts";
import { findWarnings } from "./metrics/warnings.ts";
import { makeNames } from "./names/names-cache.ts";
import { makeCheckins, type Checkins } from "./nodes/contact/checkins.ts";
import { makeNodeClocks, type NodeClocks } from "./nodes/contact/node-clocks.ts";
import { makeClones, type Clones } from "./nodes/contact/clones.ts";
import { makeLive } from "./nodes/contact/live-nodes.ts";
import { makePlaneFallback, type PlaneFallback } from "./nodes/contact/plane-fallback.ts";
import { makeProbes, type Probes } from "./nodes/contact/probe-port.ts";
import { makeRefusalNotes } from "./nodes/contact/refused-engine.ts";
import { forgetProviderGroups, nameProviderGroup } from "./nodes/name-provider-group.ts";
import { makeRenewals, type Renewals } from "./nodes/lifecycle/renewal.ts";
import { makeReports, type Reports } from "./nodes/contact/reports.ts";
import { makeExchange, type Exchange } from "./oidc/provider-requests.ts";
import { makeSentFiles, type SentFiles } from "./nodes/contact/sent-files.ts";
import { makeVersionAges, type VersionAges } from "./nodes/contact/version-ages.ts";
import type { ServerOptions } from "./options.ts";
import type { Transaction } from "./store/database.ts";
import { makeFlowReports, type FlowReports } from "./flows/flow-reports.ts";
import { makeRelayed, type Relayed } from "./paths/relayed.ts";
import { makeAddresses, type Addresses } from "./paths/peer-addresses.ts";
import { makeGroupPaths, type GroupPathSums } from "./paths/group-paths.ts";
import { makePathReports, type PathReports } from "./paths/path-reports.ts";
import { makeAccessControl, type AccessControl } from "./users/access.ts";
import { makePasswords, type Passwords } from "./users/sign-in/hash-passwords.ts";
import { makeSessions, type Sessions } from "./users/sessions/sessions.ts";
import { makeBudget, type Budget } from "./retention/budget.ts";
import { makeStreams, type Streams } from "./stream/streams.ts";
import { shareThrottle } from "./store/shared-throttle.ts";
import { returnNode } from "./nodes/lifecycle/ephemeral.ts";
import { makeLiveDrills } from "./rollout/live-drills.ts";
import { issueFirstIpv6 } from "./rollout/first-ipv6.ts";

export type Services = ServerOptions & {
  access: AccessControl;
  sessions: Sessions;
  passwords: Passwords;
  meters: Meters;
  /** Wakes the held polls of an organization or a node. */
  changes: HeldPolls;
  /** Limits wrong guesses and resumed registrations. */
  throttle: Throttle;
  authorities: Authorities;
  /** What the files of all nodes of an organization share. */
  views: Views;
  /** Configurations of nodes that were rendered, by their digest. */
  renderings: Renderings;
  /** Archives of nodes' files, by ETag and version. */
  packed: BoundedCache<Uint8Array<ArrayBuffer>>;
  /** Work that takes milliseconds of the one thread, such as renderings: one piece at a time. */
  heavyWork: InTurn;
  /** Plans of policies: they take up to a second in slices, while `heavyWork` goes on. */
  planning: InTurn;
  /** Tests of policies before an edit by hand. */
  testing: InTurn;
  checkins: Checkins;
  /** Finds nodes whose keys two machines use. */
  clones: Clones;
  /** Compares the clocks of nodes with the one of this server. */
  nodeClocks: NodeClocks;
  /** What is wrong with this server itself. */
  warnings(): Warning[];
  /** For rules that name a group of a provider of identities: see `Store` in policy/rules.ts. */
  nameProviderGroup(tx: Transaction, orgId: number, name: string): Promise<string>;
  forgetProviderGroups(tx: Transaction, orgId: number): Promise<void>;
  renewals: Renewals;
  reports: Reports;
  /** Since when organizations have had their configuration versions. */
  ages: VersionAges;
  /** Which files each node was sent last. */
  sentFiles: SentFiles;
  /** Sends datagrams to ports of nodes, to show whether they are reachable. */
  probes: Probes;
  /** TCP fallback by the listener of the control plane, for lighthouses and relays of this machine. */
  planeFallback: PlaneFallback;
  pathReports: PathReports;
  /** Sums of paths by group, for the map. */
  groupPaths: GroupPathSums;
  /** The underlay addresses of peers that nodes are told, for the time without a lighthouse. */
  addresses: Addresses;
  /** What relays forward for other nodes, by month. */
  relayed: Relayed;
  flowReports: FlowReports;
  /** Streams of events to consoles. */
  streams: Streams;
  /** Talks to providers of identities. */
  exchange: Exchange;
  /** Limits what an organization stores. */
  budget: Budget;
};

const maxPackedBytes = 8 * 1024 * 1024;

export async function makeServices(given: ServerOptions): Promise<Services> {
  // Uses the believed time: what is due, what has ended and which revocations are listed must not follow a clock that
  // jumped.
  const options = { ...given, system: { ...given.system, now: given.clock.now } };
  const { db, system } = options;
  const sessions = await makeSessions(options);
  const changes = makeHeldPolls(system);
  const meters = makeMeters();
  const throttle = shareThrottle(makeThrottle(system.monotonic, limits), options);
  const authorities = openAuthorities(options);
  const ages = makeVersionAges(system);
  const live = makeLive(db, ages);
  const reports = makeReports({ ...options, live });
  const renewals = makeRenewals({ ...options, authorities });
  const refusals = makeRefusalNotes(system);
  const names = makeNames(options);
  const addresses = makeAddresses({ ...options, names });
  const heavyWork = makeHeavyWork();
  const nodeClocks = makeNodeClocks(options);
  const budget = makeBudget(options);
  const afterConfirmation = (orgId: number) => issueFirstIpv6({ ...options, authorities }, orgId);
  return {
    ...options,
    sessions,
    changes,
    meters,
    access: makeAccessControl({ ...options, now: system.now, sessions, throttle }),
    passwords: makePasswords(),
    throttle,
    authorities,
    views: makeViews(system.now),
    renderings: makeRenderings(meters, options.log),
    packed: makeBoundedCache(maxPackedBytes),
    heavyWork,
    // `perCaller`, `perOwner`: so many may wait, of one caller and of one organization.
    planning: makeHeavyWork({ perCaller: 2, perOwner: 8 }),
    testing: makeHeavyWork({ perCaller: 32, perOwner: 256 }),
    checkins: makeCheckins({
      ...options,
      changes,
      live,
      renewals,
      reports,
      refusals,
      names,
      heavyWork,
      drills: makeLiveDrills(options, changes),
      afterConfirmation,
      bringBack: (orgId, nodeId) => returnNode({ ...options, authorities }, orgId, nodeId),
    }),
    nameProviderGroup: (tx, orgId, name) => nameProviderGroup(tx, orgId, name, system.now()),
    forgetProviderGroups: (tx, orgId) => forgetProviderGroups(tx, orgId, system.now()),
    renewals,
    reports,
    ages,
    clones: makeClones(options),
    nodeClocks,
    warnings: () => findWarnings({ ...options, nodeClocks }),
    probes: makeProbes(system.monotonic),
    planeFallback: makePlaneFallback(options),
    sentFiles: makeSentFiles(options),
    pathReports: makePathReports({ ...options, addresses }),
    groupPaths: makeGroupPaths({ ...options, changes }),
    addresses,
    relayed: makeRelayed(options),
    streams: makeStreams({ ...options, reports }),
    exchange: makeExchange(options),
    flowReports: makeFlowReports({ ...options, budget }),
    budget,
  };
}

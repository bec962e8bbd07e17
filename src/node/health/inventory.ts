// The facts as of the last refresh: an organization's files, its engine, the engine's tunnels, and the names of peers.
// The inventory reads only. prober.ts knows what answers probes.

import { join } from "node:path";
import { fileStamp } from "../../base/files.ts";
import type { System } from "../../base/system.ts";
import { currentGeneration } from "../files/generations.ts";
import { hostsPath, indexHosts, peerNames, readAllHosts, readHosts } from "../files/hosts.ts";
import type { Organization } from "../files/organizations.ts";
import { maxNames } from "../../protocol/names.ts";
import type { Facts } from "./configured-facts.ts";
import { hasTraffic } from "./probe-paces.ts";
import { Tunnels, type EngineTunnel } from "./tunnels.ts";

/** The running engine. `ageMs`: since its start. */
export type EngineSeen = { pid: number; version: string | undefined; ageMs: number };

export type InventoryDeps = {
  system: Pick<System, "now">;
  /** ms that never go back. */
  monotonic(): number;
  /** The running engine; undefined if none runs. */
  engine(): Promise<EngineSeen | undefined>;
  /** Undefined if the engine does not report its tunnels. */
  tunnels(): Promise<readonly EngineTunnel[] | undefined>;
};

/** Limits of what is remembered. */
const mostFingerprints = 2000;
const mostServed = 8;
const mostNames = 1000;

/** The facts of the last refresh. `lookedAt`: its time, ms since 1970. */
export type Snapshot = { facts: Facts; engine: EngineSeen; lookedAt: number };

export class Inventory {
  readonly tunnels = new Tunnels();
  readonly #deps: InventoryDeps;
  readonly #place: Pick<Organization, "slug" | "directory">;
  /** Names that certificates of tunnels had, and names that a user asked for. */
  readonly #names = new PeerNames();
  #facts: Facts | undefined;
  /** Stamp of the files that the facts come from. config.yml counts too: a choice of routers rewrites it within a generation. */
  #factsStamp = "";
  /** Of hosts.json: its stamp, whether it has other nodes, and for a lighthouse some of them. Without the file there may be others. */
  #hosts: { stamp: string; hasOthers: boolean; served: readonly string[] } = {
    stamp: "",
    hasOthers: true,
    served: [],
  };
  /** The fingerprints of certificates that peers had, by address: also of peers whose tunnels have ended. */
  readonly #fingerprints = new Map<string, string>();
  /** Addresses of which it is known that the present hosts.json lists them. */
  #listed = new Set<string>();
  /** Names that were looked up in the present hosts.json, which is too long to keep. */
  readonly #fileNames = new Map<string, string>();
  #readName: (address: string) => string = (address) => address;
  #engine: EngineSeen | undefined;
  #lookedAt: number | undefined;
  #reportsTunnels = false;

  constructor(place: Pick<Organization, "slug" | "directory">, deps: InventoryDeps) {
    this.#place = place;
    this.#deps = deps;
  }

  /** Undefined if no engine runs, or before the first refresh. */
  get snapshot(): Snapshot | undefined {
    const facts = this.#facts;
    const engine = this.#engine;
    const lookedAt = this.#lookedAt;
    return facts === undefined || engine === undefined || lookedAt === undefined
      ? undefined
      : { facts, engine, lookedAt };
  }

  /** Whether the engine reports its tunnels (from 1.12 on). */
  get reportsTunnels(): boolean {
    return this.#reportsTunnels;
  }

  /**
   * Whether there may be traffic with a node other than a lighthouse. True if the engine does not report its tunnels, and before the
   * first refresh.
   */
  mayHaveTraffic(now: number): boolean {
    return !this.#reportsTunnels || hasTraffic(this.tunnels.all, now, this.#facts?.lighthouses);
  }

  /** False only if it is certain that the organization has no other node. */
  get hasOthers(): boolean {
    return this.#hosts.hasOthers || this.tunnels.all.length > 0;
  }

  /**
   * Reads everything again. `probesTo`: how many probes went to an address since the last refresh. Rejects if files are damaged or
   * removed, which other code reports.
   */
  async refresh(probesTo: (address: string) => number): Promise<void> {
    const { engine, monotonic, system, tunnels } = this.#deps;
    // A new reader also drops what the last one has cached of hosts.json.
    this.#readName = peerNames(this.#place.slug, this.#place.directory);
    this.#engine = await engine();
    if (this.#engine === undefined) return;
    const facts = await this.#readFacts();
    const reported = await tunnels().catch(() => undefined);
    this.#reportsTunnels = reported !== undefined;
    // The engine may keep the tunnel of a revoked certificate for a moment.
    const valid = (reported ?? []).filter(({ cert }) => !cert || !facts.isBlocked(cert.fingerprint));
    const { own, lighthouses } = facts;
    this.tunnels.update(valid, { own, lighthouses, now: monotonic(), probesTo });
    for (const { address, name } of this.tunnels.all) this.#names.remember(address, name);
    // By each address: users may ask for a peer by another one than its tunnel is listed under, and a revocation ends them all.
    for (const { vpnAddrs, cert } of valid)
      if (cert) for (const address of vpnAddrs) this.#rememberFingerprint(address, cert.fingerprint);
    this.#readHosts(facts);
    this.#lookedAt = system.now();
  }

  /**
   * Which of these are no longer peers: revoked by the configuration, or not in hosts.json any more, because they were deleted or no
   * rule connects them with this node. Without hosts.json, or if it may be cut, only the configuration tells.
   */
  goneAmong(addresses: readonly string[]): string[] {
    const facts = this.#facts;
    if (facts === undefined) return [];
    // Peers by the configuration, whether hosts.json lists them or not.
    const hubs = new Set([...facts.lighthouses, ...facts.relays, ...facts.otherHubs]);
    const gone = addresses.filter((each) => this.isBlocked(each));
    const unsure = addresses.filter(
      (each) => !gone.includes(each) && !hubs.has(each) && !this.#listed.has(each),
    );
    const hosts = unsure.length === 0 ? undefined : readAllHosts(this.#place.directory);
    if (hosts === undefined || hosts.nodes.length >= maxNames) return gone;
    const index = indexHosts(hosts, this.#place.slug);
    for (const each of unsure) {
      if (index.byAddress(each) === undefined) gone.push(each);
      else this.#listed.add(each);
    }
    return gone;
  }

  /** Whether the last certificate that was seen of a peer is revoked. */
  isBlocked(address: string): boolean {
    return this.#facts?.isBlocked(this.#fingerprints.get(address) ?? "") === true;
  }

  /** Removes the name of a peer that is gone. */
  forget(address: string): void {
    this.#names.forget(address);
  }

  #rememberFingerprint(address: string, fingerprint: string): void {
    this.#fingerprints.delete(address);
    this.#fingerprints.set(address, fingerprint);
    const [oldest = ""] = this.#fingerprints.keys();
    if (this.#fingerprints.size > mostFingerprints) this.#fingerprints.delete(oldest);
  }

  /** The name of a peer: in its certificate, else in hosts.json; its address if no name is known. */
  nameOf(address: string): string {
    const remembered = this.#names.of(address);
    if (remembered !== address) return remembered;
    const name = this.#fileNames.get(address) ?? this.#readName(address);
    if (this.#fileNames.size >= mostNames) this.#fileNames.clear();
    this.#fileNames.set(address, name);
    return name;
  }

  /** `peer`: a name, or an address in the overlay. */
  addressOf(peer: string): string | undefined {
    const isAddress = this.#facts?.isInside(peer) === true;
    if (isAddress && this.nameOf(peer) !== peer) return peer;
    const known = this.#names.addressOf(peer);
    if (known !== undefined) return known;
    const { slug, directory } = this.#place;
    const hosts = readAllHosts(directory);
    const index = hosts === undefined ? undefined : indexHosts(hosts, slug);
    const found = isAddress ? index?.byAddress(peer) : index?.byName(peer);
    const address = isAddress ? peer : found?.addresses[0];
    if (found !== undefined && address !== undefined) this.#names.remember(address, found.node.name);
    return address;
  }

  /** Some nodes that this lighthouse serves; empty for another node. */
  get served(): readonly string[] {
    return this.#hosts.served;
  }

  /** The address of this node from which an address is probed: of the same family. */
  sourceFor(address: string): string | undefined {
    return this.#facts?.own.find((each) => each.includes(":") === address.includes(":"));
  }

  async #readFacts(): Promise<Facts> {
    const { directory } = this.#place;
    const stamp = `${currentGeneration(directory)} ${fileStamp(join(directory, "config.yml"))}`;
    if (this.#facts !== undefined && this.#factsStamp === stamp) return this.#facts;
    const { readFacts } = await import("./configured-facts.ts");
    this.#facts = readFacts(this.#place);
    // Names come from the seal, too, which belongs to the generation.
    this.#fileNames.clear();
    this.#factsStamp = stamp;
    return this.#facts;
  }

  /** Keeps only a few facts of hosts.json: the list may be long. */
  #readHosts({ own, isLighthouse }: Facts): void {
    const { directory } = this.#place;
    // A change replaces the file, so the stamp differs even within one tick of the file system's clock.
    const stamp = fileStamp(hostsPath(directory));
    if (stamp === this.#hosts.stamp) return;
    this.#listed = new Set();
    this.#fileNames.clear();
    const hosts = readHosts(directory);
    const others = hosts?.nodes.filter(({ ip }) => !own.includes(ip));
    const hasOthers = others === undefined || others.length > 0;
    const served = isLighthouse ? (others ?? []).slice(0, mostServed).map(({ ip }) => ip) : [];
    this.#hosts = { stamp, hasOthers, served };
  }
}

/** Address → name, of the peers that were seen last, also of those whose tunnel has ended. */
class PeerNames {
  readonly #names = new Map<string, string>();

  of(address: string): string {
    return this.#names.get(address) ?? address;
  }

  addressOf(name: string): string | undefined {
    for (const [address, each] of this.#names) if (each === name) return address;
    return undefined;
  }

  forget(address: string): void {
    this.#names.delete(address);
  }

  remember(address: string, name: string): void {
    this.#names.delete(address);
    this.#names.set(address, name);
    for (const oldest of this.#names.keys()) {
      if (this.#names.size <= mostNames) return;
      this.#names.delete(oldest);
    }
  }
}

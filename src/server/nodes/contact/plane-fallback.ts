// TCP fallback on the control plane's own listener: which lighthouses and relays run on this very machine. The files of their
// agents say it, which only root of the machine can write, so no organization can open it. The engine's port comes from these
// files, too: what an administrator stores could be the port of any program of the machine. With several servers on one database
// the public URL leads to any of them: then this is off, and agents offer TCP fallback themselves (`--tcp-fallback`).

import { readdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import type { EnginePlace } from "../../../base/datagrams/forwarder.ts";
import { fileStamp } from "../../../base/files.ts";
import { readText } from "../../../base/open-file.ts";
import { slugPattern } from "../../../base/slug.ts";
import { isMap, type YamlValue } from "../../../base/yaml.ts";
import { listenPlaceIn } from "../../../engine/listen-place.ts";
import { atPlane, NodeConfig } from "../../../protocol/organization-files.ts";
import type { ServerOptions } from "../../options.ts";
import { nodes, type NodeRow } from "../../store/tables/nodes.ts";
import { organizations } from "../../store/tables/organizations.ts";
import { notifyNode, raiseConfigVersion } from "../../store/versions.ts";
import { isHub } from "../../../protocol/routing/roles.ts";

type Deps = Pick<ServerOptions, "db" | "machineRoot">;

export type PlaneFallback = {
  /** The engine that listens on this UDP port, for the listener's forwarder. */
  engineAt(port: number): EnginePlace | undefined;
  /** Reads the files again, and stores for the nodes of these organizations what has changed. */
  look(): Promise<void>;
};

export function makePlaneFallback({ db, machineRoot }: Deps): PlaneFallback {
  /** By the engine's port. */
  let engines = new Map<number, EnginePlace>();
  let ownNodes: OwnNode[] = [];
  return {
    engineAt: (port) => engines.get(port),
    async look() {
      const offering: NodeRow[] = [];
      const places: typeof engines = new Map();
      const isOffered = machineRoot !== undefined && db.dialect !== "postgres";
      ownNodes = isOffered ? nodesOfMachine(machineRoot, ownNodes) : [];
      for (const { config, port, place } of ownNodes) {
        const org = await organizations.find(db, { slug: config.org_slug });
        // A node of another control plane may have the same number and an organization of the same name.
        if (org === undefined || !Bun.deepEquals(config.order_key, org.orderPublic)) continue;
        const node = await nodes.find(db, { orgId: org.id, id: config.node_id, state: "active" });
        if (node === undefined || !isHub(node)) continue;
        places.set(port, place);
        offering.push(node);
      }
      engines = places;
      // `atPlane`, in place of a port: by the control plane's own listener.
      const stored = await nodes.all(db, { tcp: atPlane });
      const ids = new Set(offering.map(({ id }) => id));
      const changes = [
        ...offering.filter(({ tcp }) => tcp !== atPlane).map((node) => ({ node, tcp: atPlane })),
        ...stored.filter(({ id }) => !ids.has(id)).map((node) => ({ node, tcp: null })),
      ];
      for (const { node, tcp } of changes) await storeTcp(db, node, tcp);
    },
  };
}

/**
 * Stores where a lighthouse or relay is reached by TCP: a port, `atPlane`, or null for nowhere. All nodes of its organization get it
 * with their next configuration.
 */
export async function storeTcp(
  db: Deps["db"],
  { id, orgId }: Pick<NodeRow, "id" | "orgId">,
  tcp: string | null,
): Promise<void> {
  await db.writeFor({ org: orgId }, async (tx) => {
    await nodes.update(tx, { id }, { tcp });
    await notifyNode(tx, orgId, id);
    await raiseConfigVersion(tx, orgId);
  });
}

/** A node of this machine. `port`: of its engine. `stamp`: changes with its files. */
type OwnNode = { config: NodeConfig; port: number; place: EnginePlace; stamp: string };

/**
 * The nodes whose directories are in `configRoot`. `before`: what the last call returned. A long blocklist takes a tenth of a second
 * to parse, so only changed files are read.
 */
function nodesOfMachine(configRoot: string, before: readonly OwnNode[]): OwnNode[] {
  let names: string[];
  try {
    names = readdirSync(configRoot).filter((name) => slugPattern.test(name));
  } catch {
    // Without this directory, the machine is no node.
    return [];
  }
  return names.flatMap((name) => {
    try {
      const paths = ["node-config.json", "config.yml"].map((file) => join(configRoot, name, file));
      const stamp = [name, ...paths.map(fileStamp)].join(" ");
      const unchanged = before.find((node) => node.stamp === stamp);
      if (unchanged !== undefined) return unchanged;
      const [json = "", yaml = ""] = paths.map((path) => readText(path));
      const config = v.parse(NodeConfig, JSON.parse(json));
      const engineConfig = Bun.YAML.parse(yaml) as YamlValue;
      const { port = 0, ...place } = listenPlaceIn(isMap(engineConfig) ? engineConfig : {});
      return port === 0 ? [] : { config, port, place, stamp };
    } catch {
      // Left out: the files are damaged, which the agent reports, or they are being replaced.
      return [];
    }
  });
}

// Caches the digest of each node's config.yml: after a change for few nodes, the other nodes learn that nothing changed
// for them without rendering their files again.

import { createHash } from "node:crypto";
import { renderConfig, type ConfigNode, type ConfigView, type RenderedConfig } from "./config.ts";
import { AppError } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { Meters } from "../http/meters.ts";

export type Renderings = {
  /**
   * `digest` comes from the cache or from rendering. `text` renders on demand, and throws payload_too_large if nodes would
   * refuse the file: a node without a new configuration still checks in and obeys orders.
   */
  of(view: ConfigView, node: ConfigNode): { digest: string; text(): string };
};

/** About 200 bytes each. A full cache is cleared. */
const maxKept = 200_000;

export function makeRenderings(meters: Pick<Meters, "rendered">, log?: Pick<Log, "warn">): Renderings {
  const refuse = makeRefuser(log);
  const kept = new Map<number, { input: string; digest: string }>();
  const render = (view: ConfigView, node: ConfigNode) => {
    meters.rendered();
    return renderConfig(view, node);
  };
  return {
    of(view, node) {
      const own = inputOf(node);
      const input = createHash("sha256").update(view.digest).update(JSON.stringify(own)).digest("base64url");
      const known = kept.get(node.id);
      let rendered: RenderedConfig | undefined;
      const text = () => {
        rendered ??= render(view, own);
        if (rendered.excess !== undefined) throw refuse(view, own, rendered.excess);
        return rendered.text;
      };
      if (known?.input === input) return { digest: known.digest, text };
      rendered = render(view, own);
      const { digest } = rendered;
      if (kept.size >= maxKept) kept.clear();
      kept.set(node.id, { input, digest });
      return { digest, text };
    },
  };
}

/** Nodes retry: log each state of an organization once. */
function makeRefuser(log: Pick<Log, "warn"> | undefined) {
  const logged = new Set<string>();
  return ({ slug, digest }: ConfigView, { name }: ConfigNode, excess: string) => {
    if (!logged.has(digest)) {
      if (logged.size >= maxLogged) logged.clear();
      logged.add(digest);
      log?.warn("A configuration is too large: nodes keep their current one", {
        org: slug,
        node: name,
        excess,
      });
    }
    const message = `The configuration of ${name} is too large: it has ${excess}. Reduce rules, subnets, overrides or blocked certificates.`;
    return new AppError("payload_too_large", message);
  };
}

const maxLogged = 1000;

/** Everything that a configuration may depend on: rendering sees no other column. */
function inputOf(node: ConfigNode): ConfigNode {
  return {
    id: node.id,
    name: node.name,
    ip: node.ip,
    ip6: node.ip6,
    groups: node.groups,
    isLighthouse: node.isLighthouse,
    isRelay: node.isRelay,
    publicIp: node.publicIp,
    externalPort: node.externalPort,
    listenPort: node.listenPort,
    subnets: node.subnets,
    configOverrides: node.configOverrides,
    overlayVersion: node.overlayVersion,
    platform: node.platform,
  };
}

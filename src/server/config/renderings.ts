// Which config.yml every node would get, by digest: after a change that concerns few nodes, all others are told that
// nothing changed for them without being rendered anew.

import { createHash } from "node:crypto";
import { renderConfig, type ConfigNode, type ConfigView, type RenderedConfig } from "./config.ts";
import { AppError } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { Meters } from "../http/meters.ts";

export type Renderings = {
  /**
   * `digest` is known or found by rendering; the text is rendered when it is asked for. Then it throws payload_too_large
   * where nodes would refuse it: a node without a new configuration still checks in, and obeys orders.
   */
  of(view: ConfigView, node: ConfigNode): { digest: string; text(): string };
};

/** Some 200 bytes each; beyond it all is forgotten and found again. */
const maxKept = 200_000;

export function makeRenderings(meters: Pick<Meters, "rendered">, log?: Pick<Log, "warn">): Renderings {
  const refuse = makeRefusal(log);
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

/** Nodes ask again and again: each state of an organization is logged once. */
function makeRefusal(log: Pick<Log, "warn"> | undefined) {
  const logged = new Set<string>();
  return ({ slug, digest }: ConfigView, { name }: ConfigNode, excess: string) => {
    if (!logged.has(digest)) {
      if (logged.size >= maxLogged) logged.clear();
      logged.add(digest);
      log?.warn("A configuration is too large, nodes keep their present one", {
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

/** All that a configuration may depend on: what is not here cannot be rendered. */
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
    overrides: node.overrides,
    overlayVersion: node.overlayVersion,
    platform: node.platform,
  };
}

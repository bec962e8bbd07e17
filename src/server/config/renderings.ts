// Caches configurations: the digest of each, and the texts in use. Nodes that differ in nothing their configurations
// depend on share one, so a change costs one rendering for each kind of node, not one for each node.

import { createHash } from "node:crypto";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { inSlices } from "../http/heavy-work.ts";
import type { Meters } from "../http/meters.ts";
import { makeBoundedCache } from "./bounded-cache.ts";
import { kindOf, type ConfigNode, type ConfigView } from "./config-view.ts";
import { renderSlices, type RenderedConfig } from "./config.ts";

export type Rendering = {
  digest: string;
  /**
   * Renders unless the text is cached. Throws payload_too_large if nodes would refuse the file: a node without a new
   * configuration still checks in and obeys orders.
   */
  text(): Promise<string>;
};

export type Renderings = {
  /** The configuration of a node. Renders it unless its digest is cached, by `inTurn`: after others have had their turn. */
  of(view: ConfigView, node: ConfigNode, inTurn?: WorkInTurn): Promise<Rendering>;
};

export type WorkInTurn = <T>(work: () => Promise<T>) => Promise<T>;

/** Digests, about 300 bytes each. */
const maxDigests = 200_000;
/** Four configurations of the largest size. */
const maxTextBytes = 32 * 1024 * 1024;

export function makeRenderings(
  meters: Pick<Meters, "rendered">,
  log?: Pick<Log, "warn">,
  maxBytes = maxTextBytes,
): Renderings {
  const tooLarge = makeTooLarge(log);
  const digests = makeBoundedCache<string>(maxDigests);
  /** Rendered configurations by their digest. */
  const texts = makeBoundedCache<RenderedConfig>(maxBytes);
  return {
    async of(view, node, inTurn = (work) => work()) {
      const kind = kindOf(view, node);
      const input = createHash("sha256").update(view.digest).update(JSON.stringify(kind)).digest("base64url");
      const render = async () => {
        meters.rendered();
        const rendered = await inSlices(renderSlices(view, kind));
        digests.set(input, rendered.digest, 1);
        texts.set(rendered.digest, rendered, rendered.text.length);
        return rendered;
      };
      // Another node with the same input may have been rendered while this one waited.
      const digest =
        digests.get(input) ?? (await inTurn(async () => digests.get(input) ?? (await render()).digest));
      const text = async () => {
        const rendered = texts.get(digest) ?? (await render());
        if (rendered.excess !== undefined) throw tooLarge(view, node, rendered.excess);
        return rendered.text;
      };
      return { digest, text };
    },
  };
}

/** The result makes the error about a configuration, and logs it. Nodes retry, so each state of an organization is logged once. */
function makeTooLarge(log: Pick<Log, "warn"> | undefined) {
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

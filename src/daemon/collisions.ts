// Finds organizations that cannot run side by side on one machine. The engine notices some conflicts too late and others
// never: a second one with an overlapping network takes over the first one's route, and deletes it when it ends.

import * as v from "valibot";
import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { isSilentLevel } from "../node/files/config/read-config.ts";
import { networkTextsOverlap } from "../base/ip.ts";

/** The resources that an engine uses exclusively, and what else a start needs of its configuration. */
export type Claim = {
  slug: string;
  /** Name of the tun device as the kernel truncates it; undefined if the system chooses one. */
  device: string | undefined;
  /** The engine's UDP port; undefined if the system chooses one. */
  listen: { host: string; port: number } | undefined;
  /** Overlay networks, "10.77.0.0/16". */
  networks: readonly string[];
  /** The log level hides readiness and reloads. */
  silent: boolean;
};

const Config = v.object({
  tun: v.optional(
    v.object({
      dev: v.optional(v.string()),
      disabled: v.optional(v.union([v.string(), v.number(), v.boolean()])),
    }),
  ),
  listen: v.optional(v.object({ host: v.optional(v.string()), port: v.optional(v.unknown()) })),
  logging: v.optional(v.object({ level: v.optional(v.string()) })),
});

/** Linux truncates longer device names without an error. */
const deviceNameLength = 15;

/** Reads the claim of an organization from its config.yml. Throws bad_configuration if that is invalid. */
export function readClaim(slug: string, configYml: string, networks: readonly string[]): Claim {
  const parsed = v.safeParse(Config, parseYaml(slug, configYml));
  if (!parsed.success) throw new AppError("bad_configuration", `Cannot read the configuration of ${slug}`);
  const { tun, listen, logging } = parsed.output;
  const port = Number(listen?.port ?? 0);
  // What the engine reads as true.
  const disabled = /^(true|1|t|y|yes)$/i.test(String(tun?.disabled ?? false));
  return {
    slug,
    device: disabled ? undefined : tun?.dev?.slice(0, deviceNameLength) || undefined,
    listen: Number.isInteger(port) && port > 0 ? { host: listen?.host ?? "0.0.0.0", port } : undefined,
    networks: disabled ? [] : networks,
    silent: isSilentLevel(logging?.level),
  };
}

function parseYaml(slug: string, text: string): unknown {
  try {
    return Bun.YAML.parse(text);
  } catch (error) {
    throw new AppError("bad_configuration", `The configuration of ${slug} is not valid YAML`, {
      cause: error,
    });
  }
}

/** Throws AppError("collision") with the reason if `claim` conflicts with one of the others. */
export function refuseCollision(claim: Claim, others: readonly Claim[]): void {
  for (const other of others) {
    if (other.slug === claim.slug) continue;
    const reason = whyExclusive(claim, other);
    if (reason === undefined) continue;
    throw new AppError("collision", `${claim.slug} cannot run beside ${other.slug}: ${reason}`, {
      hint:
        `Stop ${other.slug} first (\`${brand.executable} stop ${other.slug}\`), then run \`${brand.executable} start ${claim.slug}\`. ` +
        `If the daemon runs both, \`${brand.executable} switch ${claim.slug}\` does that.`,
    });
  }
}

/** What both need for themselves, as the end of a sentence; undefined: they can run side by side. */
function whyExclusive(a: Claim, b: Claim): string | undefined {
  if (a.device !== undefined && a.device === b.device) return `both use the interface ${a.device}`;
  if (a.listen !== undefined && b.listen !== undefined && isSameSocket(a.listen, b.listen))
    return `both use the UDP port ${a.listen.port}`;
  for (const network of a.networks) {
    const other = b.networks.find((each) => networkTextsOverlap(network, each));
    if (other !== undefined) return `their networks ${network} and ${other} overlap`;
  }
  return undefined;
}

function isSameSocket(a: { host: string; port: number }, b: { host: string; port: number }): boolean {
  const everywhere = (host: string) => ["", "0.0.0.0", "::", "[::]"].includes(host);
  return a.port === b.port && (a.host === b.host || everywhere(a.host) || everywhere(b.host));
}

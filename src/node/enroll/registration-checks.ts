// What a registration is asked for, and whether this machine can be registered that way. Everything here happens before the control
// plane is asked.

import { lstatSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { defaultOverlayPort } from "../../api/values.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import { maxLabel } from "../../protocol/host-labels.ts";
import type { RegisterRequest } from "../../protocol/registration.ts";
import type { Mode } from "../../protocol/values.ts";
import { listenPort } from "../files/config/read-config.ts";
import { salvageOrganization } from "../files/damaged-organization.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { permissionsOrNone, type Permissions } from "../files/permissions.ts";
import type { WaitingOptions } from "./approval.ts";
import { keepsKeys } from "./pending-keys.ts";

export type Registration = WaitingOptions & {
  apiBase: string;
  slug: string;
  /** Unset: derived from the host name. */
  name: string | undefined;
  mode: Mode;
  credential: { registrationToken: string } | { accessToken: string };
  /** PEM of the control plane's own TLS CA; empty in a plan, which has the fingerprint alone. */
  apiCa: string | undefined;
  caFingerprint?: string | undefined;
  allowPlainHttp: boolean;
  force: boolean;
  /** A user confirmed these keys and this name in the browser. */
  isEnrolled?: boolean;
  /** `--replace`: take the place of a former node of this name. Needs the rights of an administrator. */
  replaces?: boolean;
  /** `--new-keys`: make this machine another node. It is a copy of another machine, which stays the node that both are now. */
  newKeys?: boolean;
  /** Permissions of this machine's administrator for the control plane. Others stay as they are. */
  allow?: Partial<Permissions>;
  /** The hash of a seal, which a signer gave to the user, or which the join key has. */
  seal?: string | undefined;
  /** Called before a node without such a hash begins with an enforced seal. Throws to refuse it. */
  confirmSeal?: ((hash: string) => Promise<void>) | undefined;
  /** Optional properties of the node. */
  wishes: Pick<
    RegisterRequest,
    "ip_address" | "is_lighthouse" | "is_relay" | "public_ip" | "external_port" | "listen_port"
  >;
};

/** A node name from the host name: lower case, one DNS label. */
export function defaultNodeName(name: string = hostname()): string {
  const label = (name.split(".")[0] ?? "").toLowerCase().replace(/[^a-z0-9-]+/g, "-");
  return label.slice(0, maxLabel).replace(/^-+|-+$/g, "") || "node";
}

/** Throws if this machine cannot be registered this way. `formerName`: the name of the node that --force registers again. */
export function requireRegistrable(registration: Registration, { configRoot }: { configRoot: string }) {
  const { slug, name } = registration;
  const directory = join(configRoot, slug);
  if (registration.newKeys === true) {
    refuseSameName(registration, configRoot);
    refuseTakenPort(configRoot, registration);
    return { directory, formerName: undefined };
  }
  refuseExisting(directory, registration);
  // With the keys that are here it becomes the same node again, whose name stays.
  const formerName = keepsKeys(directory) ? salvageOrganization(configRoot, slug).name : undefined;
  if (name !== undefined && formerName !== undefined && name !== formerName) {
    throw new AppError(
      "conflict",
      `This machine is registered with "${slug}" as "${formerName}": --force registers the same node again, and cannot rename it to "${name}"`,
      {
        hint:
          `Leave out --node-name, and rename the node on the control plane. Or register a new node: first run ` +
          `\`${brand.executable} unregister --org-slug ${quoteWord(slug)}\`. ` +
          `If the control plane has renamed it already, first run \`${brand.executable} sync-config\`.`,
      },
    );
  }
  refuseTakenPort(configRoot, registration);
  return { directory, formerName };
}

/** For --new-keys: two nodes cannot have one name, and the other machine keeps the present one. */
function refuseSameName({ slug, name = defaultNodeName() }: Registration, configRoot: string): void {
  const { name: currentName } = salvageOrganization(configRoot, slug);
  if (currentName === undefined)
    throw new AppError("not_registered", `This machine is no node of "${slug}", so it needs no other keys`, {
      hint: `Leave out --new-keys.`,
    });
  if (name !== currentName) return;
  throw new AppError(
    "conflict",
    `This machine is "${currentName}" in "${slug}", and another machine keeps that name`,
    {
      hint: "Choose another name with --node-name.",
    },
  );
}

/** Throws conflict if the organization is registered here, unless --force is given. */
function refuseExisting(directory: string, { force, slug }: Pick<Registration, "force" | "slug">): void {
  // Anything at this path counts: a damaged registration is replaced only with --force.
  const path = join(directory, "node-config.json");
  if (force || lstatSync(path, { throwIfNoEntry: false }) === undefined) return;
  throw new AppError("conflict", `This machine is already registered with "${slug}" (${directory})`, {
    hint: "Use --force to register the same node again, or run `agent unregister` first.",
  });
}

/** Refuses a fixed port that another organization of this machine uses: two engines cannot share one. */
function refuseTakenPort(configRoot: string, { slug, wishes }: Registration): void {
  const port = wishedPort(wishes);
  if (port === 0) return;
  for (const other of listOrganizations(configRoot)) {
    if (other === slug || listenPort(join(configRoot, other)) !== port) continue;
    throw new AppError("collision", `The organization "${other}" on this machine uses UDP port ${port}`, {
      hint: "Choose another port with --external-port, or with --listen-port if a router maps it.",
    });
  }
}

/** The fixed UDP port that the node asks for; 0: any free one. */
function wishedPort(wishes: Registration["wishes"]): number {
  const { is_lighthouse, is_relay, public_ip, external_port, listen_port } = wishes;
  const isFixed = is_lighthouse === true || is_relay === true || public_ip !== undefined;
  return listen_port ?? (isFixed ? (external_port ?? defaultOverlayPort) : 0);
}

/** The permissions of the flags. A port below 1024 that the user asks for is permitted with it. */
export function allowedBy({ allow = {}, wishes }: Registration, directory: string): Partial<Permissions> {
  const port = wishedPort(wishes);
  if (port === 0 || port >= 1024) return allow;
  const { listeners } = { ...permissionsOrNone(directory), ...allow };
  return { ...allow, listeners: [...new Set([...listeners, `:${port}`])] };
}

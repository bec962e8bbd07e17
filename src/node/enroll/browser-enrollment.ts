// Joins an organization without a key: makes the keys, and waits until a user has typed the four words of the key in a
// browser. Until then everything is in memory, so an interrupted wait leaves nothing behind. After the confirmation, keys and
// token are in the pending directory of the registration, where the next run finds them.

import { given } from "../../base/given.ts";
import { existsSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import type { AnswerOf, GivenOf } from "../../api/endpoint.ts";
import { enrollmentsApi } from "../../api/enrollments.ts";
import { request } from "../../api/request.ts";
import { AppError, hasCode } from "../../base/errors.ts";
import { inWords } from "../../base/quantities.ts";
import { writeFileAtomic } from "../../base/files.ts";
import { wordsOfKey } from "../../protocol/key-words.ts";
import { fingerprintOfHostKey, makeHostKey, makeNodeKey, publicPemOfHostKey } from "../../pki/keys.ts";
import { NodeName, Slug } from "../../protocol/values.ts";
import type { System } from "../../base/system.ts";
import type { Client } from "../contact/requests/client.ts";
import { listOrganizations } from "../files/list-organizations.ts";
import { readValidJson } from "../files/json-file.ts";
import { withLock } from "../files/lock.ts";
import { salvageOrganization } from "../files/damaged-organization.ts";
import { temporarySibling } from "../files/replacement.ts";
import { isPassing } from "./approval.ts";
import { enrollmentFile, openPending } from "./pending.ts";
import { makeKeys, type Keys } from "./pending-keys.ts";

const text = (max: number) => v.pipe(v.string(), v.minLength(1), v.maxLength(max));
/** enrollment.json in the pending directory: what a user confirmed. */
const SavedEnrollment = v.object({
  api_base: text(2048),
  slug: Slug,
  name: NodeName,
  registration_token: text(128),
});
/** A machine that a user has confirmed. */
export type Enrolled = { slug: string; name: string; registrationToken: string };

/** What the user sees while this machine waits. */
export type Shown = { address: string; words: readonly string[]; endsInS: number };
type Asked = { name: string; slug: string | undefined };
type Deps = { system: Pick<System, "sleep" | "now" | "platform" | "arch"> };

/**
 * Makes keys and waits for the user's confirmation. Throws enrollment_ended if none comes in time, not_found for a control plane
 * that is too old, and untrusted_answer if another organization than `slug` was confirmed.
 */
export async function awaitConfirmation(
  client: Client,
  { name, slug }: Asked,
  { system }: Deps,
  show: (shown: Shown) => void,
): Promise<Enrolled & { keys: Keys }> {
  const { makeCsr } = await import("../../pki/x509.ts");
  const keys = { host: makeHostKey().privatePem, node: makeNodeKey().privatePem };
  const host_public_key = publicPemOfHostKey(keys.host);
  const body = {
    name,
    host_public_key,
    node_csr: await makeCsr({ privateKeyPem: keys.node, name }),
    machine: hostname().slice(0, 200) || "unnamed",
    platform: `${system.platform}-${system.arch}`,
    ...given({ organization: slug }),
  };
  const begun = await begin(client, body);
  const endsInS = begun.expires_in;
  show({
    address: begun.verification_uri,
    words: wordsOfKey(fingerprintOfHostKey(host_public_key)),
    endsInS,
  });
  const chosen = await poll(client, begun, system);
  if (slug !== undefined && chosen !== slug) {
    throw new AppError("untrusted_answer", `The control plane confirmed "${chosen}" instead of "${slug}"`);
  }
  return { slug: chosen, name, keys, registrationToken: begun.enrollment_token };
}

async function begin(
  client: Client,
  body: GivenOf<typeof enrollmentsApi.create>,
): Promise<AnswerOf<typeof enrollmentsApi.create>> {
  try {
    const answer = await client.request(request(enrollmentsApi.create, {}, body));
    if (answer.body !== undefined) return answer.body;
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
    throw new AppError("not_found", "This control plane is too old: it lets no machine join in the browser", {
      cause: error,
      hint: "Ask an administrator for a join key.",
    });
  }
  throw new AppError("untrusted_answer", "The control plane gave no address to open");
}

/** The organization that a user chose. */
async function poll(
  client: Client,
  { enrollment_token, interval, expires_in }: AnswerOf<typeof enrollmentsApi.create>,
  system: Deps["system"],
): Promise<string> {
  const end = system.now() + expires_in * 1000;
  while (system.now() < end) {
    await system.sleep(interval * 1000);
    try {
      const { body } = await client.request(request(enrollmentsApi.poll, {}, { enrollment_token }));
      if (body?.state === "confirmed" && body.organization !== null) return body.organization;
    } catch (error) {
      if (!isPassing(error)) throw error;
    }
  }
  throw new AppError(
    "enrollment_ended",
    `No user confirmed this machine within ${inWords(expires_in * 1000)}`,
    {
      hint: "Run the command again: it shows another address and other words.",
    },
  );
}

/** Stores what was confirmed, for the registration that follows and for a run after a kill. */
export async function saveEnrollment(
  configRoot: string,
  apiBase: string,
  { slug, name, registrationToken, keys }: Enrolled & { keys: Keys },
  system: Parameters<typeof withLock>[2],
): Promise<void> {
  const pending = temporarySibling(configRoot, slug, "pending");
  openPending(pending, join(configRoot, slug));
  await withLock(pending, "up", system, async () => {
    makeKeys(pending, join(configRoot, slug), keys);
    const saved = { api_base: apiBase, slug, name, registration_token: registrationToken };
    writeFileAtomic(join(pending, enrollmentFile), `${JSON.stringify(saved)}\n`, 0o600);
  });
}

/** A user's earlier confirmation that no registration has used. Without `slug`: for any organization there. */
export function findEnrollment(
  configRoot: string,
  apiBase: string,
  slug: string | undefined,
): Enrolled | undefined {
  if (!existsSync(configRoot)) return undefined;
  const files = [...new Bun.Glob(`.*.pending/${enrollmentFile}`).scanSync({ cwd: configRoot, dot: true })];
  const saved = files
    .toSorted()
    .flatMap((file) => readValidJson(join(configRoot, file), SavedEnrollment) ?? []);
  const found = saved.find((one) => one.api_base === apiBase && (slug === undefined || one.slug === slug));
  if (found === undefined) return undefined;
  return { slug: found.slug, name: found.name, registrationToken: found.registration_token };
}

/** The organizations of a control plane that this machine is registered with. */
export function organizationsAt(configRoot: string, isSame: (apiBase: string) => boolean): string[] {
  return listOrganizations(configRoot).filter((slug) => {
    const { apiBase } = salvageOrganization(configRoot, slug);
    return apiBase !== undefined && isSame(apiBase);
  });
}

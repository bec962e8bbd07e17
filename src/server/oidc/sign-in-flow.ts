// A sign-in under way. Its secrets are in a sealed cookie of the browser that began it, not in the database: a flood of
// begun sign-ins fills no table, and an answer that another browser brings is foreign. The use of an answer is stored, so
// it counts once.

import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import { makeOpaqueToken } from "../../pki/opaque.ts";
import { openSecret, sealSecret } from "../../pki/secrets.ts";
import type { ServerOptions } from "../options.ts";
import { useOnce } from "../store/tables/users.ts";
import { foreignText } from "../../base/text.ts";

type Deps = Pick<ServerOptions, "db" | "system" | "secretKey">;

export const flowMs = 10 * 60_000;
const context = "oidc flow";
const secret = v.pipe(foreignText(43), v.length(43));
const Flow = v.object({
  provider: v.number(),
  state: secret,
  nonce: secret,
  verifier: secret,
  /** A path of the console. */
  returnTo: v.string(),
  /** The signed-in user who adds the identity, and the session; null: a sign-in. */
  link: v.nullable(v.object({ userId: v.number(), session: v.number() })),
  endsAt: v.number(),
});
export type Flow = v.InferOutput<typeof Flow>;

/** `cookie`: its value. */
export function beginFlow(
  { system, secretKey }: Pick<Deps, "system" | "secretKey">,
  begun: Pick<Flow, "provider" | "returnTo" | "link">,
): { flow: Flow; cookie: string } {
  const [state, nonce, verifier] = [1, 2, 3].map(() => makeOpaqueToken(system.random));
  const flow = v.parse(Flow, { ...begun, state, nonce, verifier, endsAt: system.now() + flowMs });
  return { flow, cookie: sealSecret(secretKey, JSON.stringify(flow), context) };
}

/** Takes the flow of an answer. Throws sign_in_expired if it is foreign, too late, or was used before. */
export async function takeFlow(
  { db, system, secretKey }: Deps,
  cookie: string | undefined,
  { provider, state }: { provider: number; state: string | null },
): Promise<Flow> {
  const flow = cookie === undefined ? undefined : openFlow(secretKey, cookie);
  const now = system.now();
  if (flow === undefined || flow.provider !== provider || flow.state !== state || flow.endsAt <= now)
    throw expired();
  if (!(await db.writeFor("rows", (tx) => useOnce(tx, `oidc ${flow.state}`, flow.endsAt)))) throw expired();
  return flow;
}

function openFlow(secretKey: Deps["secretKey"], cookie: string): Flow | undefined {
  try {
    return v.parse(Flow, JSON.parse(openSecret(secretKey, cookie, context)));
  } catch {
    // The cookie is invalid, or was sealed with a former secret key.
    return undefined;
  }
}

function expired(): AppError {
  return new AppError("sign_in_expired", "This sign-in was not begun in this browser, or it has ended.", {
    hint: "Begin again.",
  });
}

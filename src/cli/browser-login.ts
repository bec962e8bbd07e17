// `agent login URL`: signs in with a browser, on this machine or, with a code, on any other.

import { brand } from "../brand.ts";
import { AppError } from "../base/errors.ts";
import { inWords } from "../base/quantities.ts";
import type { Client } from "../node/contact/requests/client.ts";
import type { Context } from "./command.ts";
import { request } from "../api/request.ts";
import { ownUserApi } from "../api/users.ts";

/** Signs in with the browser of this machine, or, without one, with a code typed on another machine. */
export async function signInByBrowser(
  context: Context,
  client: Client,
  { base, browser }: { base: string; browser: readonly string[] | undefined },
) {
  const { system, output } = context;
  const { signInByCode, signInHere } = await import("../node/contact/requests/browser-sign-in.ts");
  const { sessionOf } = await import("../node/contact/requests/session.ts");
  const pair =
    browser === undefined
      ? await signInByCode(client, system, ({ address, code, endsInS }) =>
          output.say(
            `Open this page in a browser, on any machine:\n  ${address}\nand type this code, within ${inWords(endsInS * 1000)}:\n  ${code}\nDo not type a code that another person sent you: that machine would be signed in as you.`,
          ),
        )
      : await signInHere(client, system, { base, browser }, (address) =>
          output.say(
            `Sign in with the browser that opens now. If none opens, open this page, on this machine:\n  ${address}`,
          ),
        );
  const { body: me } = await client.request({
    ...request(ownUserApi.retrieve, {}),
    headers: { Authorization: `Bearer ${pair.access}` },
  });
  if (me === undefined) throw new AppError("untrusted_answer", `${brand.title} did not say who signed in`);
  return { session: sessionOf(pair, system.now()), email: me.email };
}

// Codes of a second factor: from --otp-file, or asked on the terminal.

import { AppError, hasCode } from "../base/errors.ts";
import type { makeClient } from "../node/contact/requests/client.ts";
import type { TokenPair } from "../protocol/sign-in.ts";
import type { Context } from "./command.ts";
import { valueFlag } from "./values.ts";

export const codeFlag = {
  otp: valueFlag("CODE", "Code of your second factor, where one is needed (default: ask)", { secret: true }),
};

/** Undefined without a terminal to ask on. */
export async function readCode({ values, system }: Context): Promise<string | undefined> {
  const given = await values.secret("otp");
  if (given !== undefined || !system.stdinIsTerminal) return given;
  const { ask } = await import("./ask.ts");
  const text = "Code of your authenticator app, or a recovery code: ";
  const [code = ""] = await ask([{ text, isSecret: false }], system);
  return code;
}

/** Signs in. The code is sent only if the control plane asks for it: an older one would refuse it. */
export async function signInWithCode(
  context: Context,
  client: Pick<ReturnType<typeof makeClient>, "token">,
  email: string,
  password: string,
): Promise<TokenPair> {
  try {
    return await client.token(email, password);
  } catch (error) {
    if (!hasCode(error, "second_factor_required")) throw error;
    const code = await readCode(context);
    if (code !== undefined) return client.token(email, password, code);
    throw new AppError(error.code, `${email} needs a code of the second factor`, {
      hint: "Run the command on a terminal, or give the code with --otp-file (- is standard input).",
    });
  }
}

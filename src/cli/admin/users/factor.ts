// `agent admin factor …`: the second factors of the signed-in user.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Implementation } from "../../command.ts";
import { readPassword } from "./user.ts";
import { factorsApi, signInRulesApi, totpApi } from "../../../api/factors/factors.ts";
import { request } from "../../../api/request.ts";
import { read, write } from "../api.ts";
import { valueFlag, wordArg } from "../../values.ts";

export const list: Implementation = {
  examples: [`${brand.executable} admin factor list`],
  async run(context) {
    const factors = await read(context, (api) => api.call(factorsApi.retrieve, {}));
    const lines = [
      `Authenticator app: ${factors.totp ? "yes" : "no"}`,
      `Passkeys: ${factors.passkeys}`,
      `Recovery codes left: ${factors.recovery_codes_left}`,
      ...(factors.is_required ? ["An organization, or your rights as staff, need a second factor."] : []),
    ];
    context.output.result(factors, `${lines.join("\n")}\n`);
  },
};

export const add: Implementation = {
  notes: `Run it twice. First it prints the secret for the app (on a terminal also as a QR code); it asks for your
password if this is your first second factor. Then, with --code, it takes the app's first code, and prints recovery codes
once: each replaces the app one time. Keep them away from the phone.`,
  args: {
    code: valueFlag("CODE", "The first code that the new app shows"),
    "password-file": valueFlag("FILE", "Read your password from a file (- is standard input)"),
  },
  examples: [`${brand.executable} admin factor add`, `${brand.executable} admin factor add --code 123456`],
  async run(context) {
    const { values, output } = context;
    const otp = values.text("code");
    if (otp !== undefined) {
      const made = await write(context, () => request(totpApi.confirm, {}, { otp }));
      if (made === undefined) return;
      const codes = made.recovery_codes.map((code) => `  ${code}\n`).join("");
      // Only the first factor of a user comes with recovery codes.
      const more = codes === "" ? "" : `Recovery codes, each for one sign-in:\n${codes}`;
      return output.result(made, `The app is your second factor now\n${more}`);
    }
    const made = await write(context, async (api) => {
      const { totp } = await api.call(factorsApi.retrieve, {});
      const body = totp ? {} : { current_password: await readPassword(context, { isNew: false }) };
      return request(totpApi.create, {}, body);
    });
    if (made === undefined) return;
    const next = `Then run: ${brand.executable} admin factor add --code CODE`;
    const code = context.system.stdout.isTerminal && !output.json ? await qrCode(made.otpauth_url) : "";
    output.result(made, `${code}Secret for the app: ${made.secret}\n${made.otpauth_url}\n${next}\n`);
  },
};

/** The QR code for the phone's camera. Light modules are drawn, because most terminals are dark. */
async function qrCode(text: string): Promise<string> {
  const { renderUnicodeCompact } = await import("uqr");
  return `Scan this with the app:\n\n${renderUnicodeCompact(text, { border: 2 })}\n\n`;
}

export const remove: Implementation = {
  examples: [`${brand.executable} admin factor remove`],
  async run(context) {
    const removed = await write(context, () => request(totpApi.delete, {}));
    if (removed === undefined) return;
    context.output.result({ totp: false }, "The authenticator app is removed\n");
  },
};

export const codes: Implementation = {
  examples: [`${brand.executable} admin factor codes`],
  async run(context) {
    const made = await write(context, () => request(factorsApi.createCodes, {}));
    if (made !== undefined) context.output.result(made, `${made.recovery_codes.join("\n")}\n`);
  },
};

export const staff: Implementation = {
  args: {
    RULE: wordArg("required or optional"),
  },
  examples: [`${brand.executable} admin factor staff required`],
  async run(context) {
    const [rule = ""] = context.words;
    if (rule !== "required" && rule !== "optional")
      throw new AppError("usage", `RULE must be required or optional, not "${rule}"`);
    const body = { staff_second_factor: rule === "required" };
    const rules = await write(context, () => request(signInRulesApi.update, {}, body));
    if (rules !== undefined) context.output.result(rules, `A second factor is ${rule} for staff\n`);
  },
};

// What is said of a damaged credentials.json. It may hold the node's token, whatever else is wrong with it.

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { readCredentials } from "../../../src/node/files/organizations.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const token = "tok-en_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH";

test.each([
  ["the token alone", token],
  ["the token as text", JSON.stringify(token)],
  ["another kind of value", JSON.stringify({ api_base: { token }, access_token: [token] })],
  ["a cut file", `{"access_token": "${token}`],
  ["an empty file", ""],
])("%s is called damaged, and not quoted", (_, text) => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "credentials.json");
  writeFileSync(path, text);
  let message = "";
  try {
    readCredentials(directory.path);
  } catch (error) {
    message = String(error);
  }
  expect(message).toContain(`${path} is damaged: `);
  for (const part of token.split(/[-_]/)) expect(message.replace(path, "")).not.toContain(part);
});

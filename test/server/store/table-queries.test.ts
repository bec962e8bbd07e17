// Queries beyond the simple helpers of a table: computed columns, joins and ON CONFLICT.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { messageOf } from "../../../src/base/errors.ts";
import { openSqlite } from "../../../src/server/store/sqlite/sqlite.ts";
import {
  computed,
  integer,
  joined,
  orNull,
  queryAll,
  queryNumber,
  queryOne,
  text,
  word,
} from "../../../src/server/store/table.ts";
import { meta } from "../../../src/server/store/tables/servers.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

const found = computed({ key: text(), total: integer(), answerWord: orNull(word(["yes", "no"])) });
const select =
  "SELECT m.key, 2 AS total, o.value AS answer_word FROM meta m LEFT JOIN meta o ON o.key = m.value";

const refusal = (query: Promise<unknown>) => query.then(() => "", messageOf);

test("queries parse computed and joined columns, and refuse other values", async () => {
  using directory = temporaryDirectory();
  const db = await openSqlite({ path: join(directory.path, "control.db"), now: () => 1000, role: "server" });
  await db.write(async (tx) => {
    await tx.run("DELETE FROM meta");
    await meta.insert(tx, { key: "a", value: "b" });
    expect(await meta.upsert(tx, { key: "b", value: "no" }, "ON CONFLICT DO NOTHING")).toBe(1);
    expect(await meta.upsert(tx, { key: "b", value: "other" }, "ON CONFLICT DO NOTHING")).toBe(0);
  });
  expect(await meta.all(db, {})).toEqual([
    { key: "a", value: "b" },
    { key: "b", value: "no" },
  ]);
  expect(await queryAll(db, found, `${select} ORDER BY 1`)).toEqual([
    { key: "a", total: 2, answerWord: "no" },
    { key: "b", total: 2, answerWord: null },
  ]);
  expect(await queryOne(db, found, `${select} WHERE m.key = $1`, ["c"])).toBeUndefined();
  expect(await queryNumber(db, "SELECT count(*) AS n FROM meta")).toBe(2);
  expect(await refusal(queryNumber(db, "SELECT max(key) AS n FROM meta"))).toContain(
    "column n should hold a number",
  );
  await db.write((tx) => meta.update(tx, { key: "b" }, { value: "maybe" }));
  expect(await refusal(queryAll(db, found, select))).toContain("answer_word should hold yes, no");
  const pair = joined("m", meta.pick("value"), "o", meta.pick("key"));
  const sql = `SELECT ${pair.select()} FROM meta m JOIN meta o ON o.key = m.value`;
  expect(await queryAll(db, pair, sql)).toEqual([{ value: "b", key: "b" }]);
  await db.close();
});

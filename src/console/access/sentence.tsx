// Rules and tests as sentences, whose groups and ports stand out. Other pages show them too, so this file uses nothing of
// the page Access.

import type { ComponentChild } from "preact";
import { Tag } from "../ui/tag.tsx";
import { endsOf, sideWords, trafficWords, verbOf, type Rule } from "./rules.ts";
import { verbOfTest, type PolicyTest } from "./test-text.ts";

type Parts = Record<"from" | "verb" | "to" | "traffic", string>;
/** The element around each part of a rule that is new or deleted as a whole. */
type Mark = "ins" | "del" | undefined;

const partsOf = (rule: Rule): Parts => ({
  ...endsOf(rule),
  verb: `may ${verbOf(rule)}`,
  traffic: trafficWords(rule),
});

/** `before`: the saved rule; a part that differs is shown deleted and inserted. */
export const Sentence = ({ rule, before, mark }: { rule: Rule; before?: Rule | undefined; mark?: Mark }) =>
  draw(partsOf(rule), before && partsOf(before), mark);

export const TestSentence = ({ test, mark }: { test: PolicyTest; mark?: Mark }) =>
  draw({ ...test, verb: verbOfTest(test), traffic: trafficWords(test) }, undefined, mark);

function draw(now: Parts, before: Parts | undefined, Marked: Mark) {
  const part = (key: keyof Parts, drawPart: (text: string) => ComponentChild) => {
    const old = before?.[key];
    const present = drawPart(now[key]);
    if (old !== undefined && old !== now[key])
      return (
        <>
          <del>{drawPart(old)}</del> <ins>{present}</ins>
        </>
      );
    return Marked === undefined ? present : <Marked>{present}</Marked>;
  };
  return (
    <span class="sentence">
      {part("from", drawSide)} {part("verb", (text) => text)} {part("to", drawSide)} on{" "}
      {part("traffic", (text) => (
        <Tag text={text} isPort />
      ))}
    </span>
  );
}

/** A group is a tag; "nodes in" before it is not seen, and is there for those who hear or copy the sentence. */
function drawSide(word: string) {
  const { before, name } = sideWords(word);
  if (word === "any")
    return (
      <>
        <Tag text="all" isAll />
        <span class="unseen"> nodes</span>
      </>
    );
  if (word.startsWith("group:"))
    return (
      <>
        <span class="unseen">{before}</span>
        <Tag text={name} />
      </>
    );
  return (
    <span>
      {before}
      <b>
        <bdi>{name}</bdi>
      </b>
    </span>
  );
}

/** The description; if it differs, the one before and the one after. */
export function Description({ before, after }: { before: Rule; after: Rule }) {
  const [old, now] = [before.description, after.description];
  if (old === now) return now === "" ? null : <bdi>{now}</bdi>;
  return (
    <>
      {old === "" ? null : (
        <>
          <del>
            − <bdi>{old}</bdi>
          </del>{" "}
        </>
      )}
      {now === "" ? null : (
        <ins>
          + <bdi>{now}</bdi>
        </ins>
      )}
    </>
  );
}

// Rules and tests as sentences, whose groups and ports stand out. Other pages show them too, so this file uses nothing of
// the page Access.

import type { ComponentChild } from "preact";
import { Tag } from "../ui/tag.tsx";
import { endsOf, sideWords, trafficWords, verbOf, type Rule } from "./rules.ts";
import { verbOfTest, type PolicyTest } from "./test-text.ts";

type Parts = Record<"from" | "verb" | "to" | "traffic", string>;
/** All of it is new, or is deleted. */
type Mark = "ins" | "del" | undefined;

const partsOf = (rule: Rule): Parts => ({
  ...endsOf(rule),
  verb: `may ${verbOf(rule)}`,
  traffic: trafficWords(rule),
});

/** `before`: the saved rule; a part that differs is shown deleted and inserted. */
export const Sentence = ({ rule, before, mark }: { rule: Rule; before?: Rule | undefined; mark?: Mark }) =>
  flow(partsOf(rule), before && partsOf(before), mark);

export const TestSentence = ({ test, mark }: { test: PolicyTest; mark?: Mark }) =>
  flow({ ...test, verb: verbOfTest(test), traffic: trafficWords(test) }, undefined, mark);

function flow(now: Parts, before: Parts | undefined, mark: Mark) {
  const part = (key: keyof Parts, draw: (word: string) => ComponentChild) => {
    const old = before?.[key];
    if (old !== undefined && old !== now[key])
      return (
        <>
          <del>{draw(old)}</del> <ins>{draw(now[key])}</ins>
        </>
      );
    const Marked = mark;
    return Marked === undefined ? draw(now[key]) : <Marked>{draw(now[key])}</Marked>;
  };
  const word = (text: string) => text;
  return (
    <span class="sentence">
      {part("from", side)} {part("verb", word)} {part("to", side)} on{" "}
      {part("traffic", (text) => (
        <Tag text={text} isPort />
      ))}
    </span>
  );
}

/** A group is a tag; its words are there for those who hear or copy the sentence. */
function side(word: string) {
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

/** The description. If it differs, the former and the present one. */
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

// Follows the calls of handlers. Gradio opens a stream also after a call whose answer arrived on an earlier one,
// and leaves it open, so an open stream does not mean that a call has no answer yet.
{
  const request = window.fetch, asked = new Set(), answered = new Set();
  window.unansweredCalls = () => [...asked].filter(call => !answered.has(call));
  const follow = async stream => {
    let text = "";
    for await (const part of stream.pipeThrough(new TextDecoderStream())) {
      const lines = (text + part).split("\n");
      text = lines.pop();
      for (const line of lines.filter(line => line.includes('"process_completed"')))
        answered.add(JSON.parse(line.slice("data: ".length)).event_id);
    }
  };
  window.fetch = async (address, ...options) => {
    const answer = await request(address, ...options), path = new URL(answer.url).pathname;
    if (path.endsWith("/queue/join")) asked.add((await answer.clone().json()).event_id);
    if (path.endsWith("/queue/data")) follow(answer.clone().body).catch(() => {});  // stopped by Gradio
    return answer;
  };
}

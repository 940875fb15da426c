package io.pocketmq.interop;

/** One JVM with an official client, many commands: see Lines for the form, Producers and Consumers for the commands. */
public final class Driver {
    private Driver() {}

    public static void main(String[] arguments) throws Exception {
        Lines lines = new Lines();
        Producers producers = new Producers();
        Consumers consumers = new Consumers(producers);
        producers.register(lines);
        consumers.register(lines);
        lines.on("shutdown", in -> {
            String name = in.get("name").getAsString();
            return Nudge.during(() -> producers.shutdown(name) | consumers.shutdown(name));
        });
        lines.serve();
    }
}

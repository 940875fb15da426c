package io.pocketmq.interop;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Times the requests of an official client.
 *
 * <p>Sends: from -Dstopwatch.warmup seconds after the first send on, for -Dstopwatch.window seconds. Prints {@code window
 * begins}, then {@code window ends sends=N failures=N p50=US p99=US max=US}. Pulls: prints {@code pulls begin} at the first
 * message that arrives and {@code pulls end messages=N millis=MS} once -Dstopwatch.messages have arrived.
 */
public final class Stopwatch implements RPCHook {
    private static final long WARMUP = Long.getLong("stopwatch.warmup", 2) * 1_000_000_000L;
    private static final long WINDOW = Long.getLong("stopwatch.window", 4) * 1_000_000_000L;
    private static final long MESSAGES = Long.getLong("stopwatch.messages", Long.MAX_VALUE);
    private static final int OPAQUES = 1 << 16;
    // Buckets of 1/64 of a power of two of microseconds.
    private static final int STEPS = 64;

    private final AtomicLongArray begun = new AtomicLongArray(OPAQUES);
    private final AtomicIntegerArray counts = new AtomicIntegerArray(40 * STEPS);
    private final LongAdder failures = new LongAdder();
    private final AtomicLong first = new AtomicLong();
    private final AtomicLong pullsBegun = new AtomicLong();
    private final AtomicLong pulled = new AtomicLong();

    @Override
    public void doBeforeRequest(String address, RemotingCommand request) {
        if (!isSend(request)) {
            return;
        }
        long now = System.nanoTime();
        if (first.get() == 0 && first.compareAndSet(0, now)) {
            Thread reporter = new Thread(this::report, "stopwatch");
            reporter.setDaemon(true);
            reporter.start();
        }
        begun.set(request.getOpaque() & (OPAQUES - 1), now);
    }

    @Override
    public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
        if (request.getCode() == 11 || request.getCode() == 361) {
            count(response);
        } else if (isSend(request)) {
            long now = System.nanoTime();
            long since = now - first.get() - WARMUP;
            if (since < 0 || since >= WINDOW) {
                return;
            }
            if (response == null || response.getCode() != 0) {
                failures.increment();
                return;
            }
            counts.incrementAndGet(bucket((now - begun.get(request.getOpaque() & (OPAQUES - 1))) / 1000));
        }
    }

    private static boolean isSend(RemotingCommand request) {
        return request.getCode() == 310 || request.getCode() == 10 || request.getCode() == 320;
    }

    private void count(RemotingCommand response) {
        if (response == null || response.getCode() != 0 || response.getBody() == null) {
            return;
        }
        long now = System.nanoTime();
        if (pullsBegun.compareAndSet(0, now)) {
            say("pulls begin");
        }
        int records = 0;
        ByteBuffer body = ByteBuffer.wrap(response.getBody());
        for (int at = 0; at + 4 <= body.limit(); at += body.getInt(at)) {
            records++;
        }
        long before = pulled.getAndAdd(records);
        if (before < MESSAGES && before + records >= MESSAGES) {
            say("pulls end messages=" + (before + records) + " millis=" + (now - pullsBegun.get()) / 1_000_000);
        }
    }

    private void report() {
        sleepUntil(first.get() + WARMUP);
        say("window begins");
        sleepUntil(first.get() + WARMUP + WINDOW);
        long total = 0;
        int last = 0;
        for (int i = 0; i < counts.length(); i++) {
            total += counts.get(i);
            last = counts.get(i) > 0 ? i : last;
        }
        say("window ends sends=" + total + " failures=" + failures.sum() + " p50=" + percentile(total, 0.50) + " p99="
                + percentile(total, 0.99) + " max=" + micros(last));
    }

    private long percentile(long total, double share) {
        long wanted = (long) Math.ceil(total * share);
        long seen = 0;
        for (int i = 0; i < counts.length(); i++) {
            seen += counts.get(i);
            if (seen >= wanted && seen > 0) {
                return micros(i);
            }
        }
        return 0;
    }

    private static int bucket(long micros) {
        if (micros < STEPS) {
            return (int) Math.max(0, micros);
        }
        int power = 63 - Long.numberOfLeadingZeros(micros);
        int index = (power - 5) * STEPS + (int) ((micros >> (power - 6)) - STEPS);
        return Math.min(index, 40 * STEPS - 1);
    }

    private static long micros(int bucket) {
        if (bucket < STEPS) {
            return bucket;
        }
        int power = bucket / STEPS + 5;
        return ((long) (bucket % STEPS + STEPS)) << (power - 6);
    }

    private static void sleepUntil(long nanos) {
        try {
            for (long left = nanos - System.nanoTime(); left > 0; left = nanos - System.nanoTime()) {
                Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
